package local

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func testDir(t *testing.T) Dir {
	t.Helper()
	path, err := os.MkdirTemp("", "t9k-") //nolint:usetesting // the path of t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	return Dir(path)
}

func TestNamedDirRefusesBadNames(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/s")
	if d, err := NamedDir("a-1"); err != nil || d != "/s/t9k/local/a-1" || d.Name() != "a-1" {
		t.Errorf("%q, %v", d, err)
	}
	for _, name := range []string{"", "A", "-a", "a-", "a/b", "..", "a.b", strings.Repeat("a", 33)} {
		if _, err := NamedDir(name); err == nil {
			t.Errorf("%q is accepted as a name", name)
		}
	}
	t.Setenv("XDG_STATE_HOME", "/"+strings.Repeat("s", 60))
	if _, err := NamedDir("a"); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("a path that is too long: %v", err)
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/h")
	if d, err := NamedDir("a"); err != nil || d != "/h/.local/state/t9k/local/a" {
		t.Errorf("%q, %v", d, err)
	}
}

// apiOnly are the options of a cluster that needs no privileges.
var apiOnly = Options{Components: []string{Etcd, APIServer}}

func TestConfigureKeepsItsChoices(t *testing.T) {
	d := testDir(t)
	first, err := d.Configure(apiOnly)
	if err != nil {
		t.Fatal(err)
	}
	second, err := d.Configure(Options{Components: apiOnly.Components, Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if !second.Fsync || second.Runtime != RuntimeProcess || !slices.Equal(second.Components, apiOnly.Components) {
		t.Errorf("options %+v", second.Options)
	}
	second.Options = first.Options
	if got, want := fmt.Sprint(second), fmt.Sprint(first); got != want {
		t.Errorf("the second choice is %s, the first was %s", got, want)
	}

	// The port changes only if another program uses it.
	l, err := net.Listen("tcp", first.loopback(APIServer))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	third, err := d.Configure(apiOnly)
	if err != nil {
		t.Fatal(err)
	}
	for owner, port := range third.Ports {
		if changed := port != first.Ports[owner]; changed != (owner == APIServer) {
			t.Errorf("port of %s: %d, was %d", owner, port, first.Ports[owner])
		}
	}
	if third.Pods != first.Pods || third.Services != first.Services {
		t.Errorf("networks %s %s, were %s %s", third.Pods, third.Services, first.Pods, first.Services)
	}
}

// TestPortsOfRunningClusterStayReserved verifies that no other cluster chooses or keeps the port of a component that is
// not listening at the moment, and that the ports are free after the cluster has ended.
func TestPortsOfRunningClusterStayReserved(t *testing.T) {
	ports := map[string]int{}
	if err := choosePorts(ports); err != nil {
		t.Fatal(err)
	}
	release, err := reservePorts(ports)
	if err != nil {
		t.Fatal(err)
	}
	other := maps.Clone(ports)
	if err := choosePorts(other); err != nil {
		t.Fatal(err)
	}
	for owner, port := range ports {
		if other[owner] == port {
			t.Errorf("another cluster has port %d for %s, too", port, owner)
		}
	}
	if _, err := reservePorts(map[string]int{Operator: ports[Operator]}); err == nil || !strings.Contains(err.Error(), "another cluster has taken port") {
		t.Errorf("a port was reserved twice: %v", err)
	}
	d, c := testDir(t), &Config{Ports: maps.Clone(ports)}
	releaseOther, err := d.takePorts(c)
	if err != nil {
		t.Fatal(err)
	}
	for owner, port := range ports {
		if c.Ports[owner] == port {
			t.Errorf("a cluster that had chosen port %d for %s keeps it, but another cluster has it", port, owner)
		}
	}
	if saved, err := d.Load(); err != nil || !maps.Equal(saved.Ports, c.Ports) {
		t.Errorf("the ports %v are saved, and %v are reserved: %v", saved, c.Ports, err)
	}
	if err := errors.Join(release(), releaseOther()); err != nil {
		t.Fatal(err)
	}
	again := maps.Clone(ports)
	if err := choosePorts(again); err != nil || !maps.Equal(again, ports) {
		t.Errorf("after the end of the cluster its ports are %v, were %v: %v", again, ports, err)
	}
}

func TestConfigureRefusesBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		`there is no component "x"`:                          {Components: []string{Etcd, "x"}},
		`there is no runtime "x": use process or containerd`: {Runtime: "x"},
	} {
		if _, err := testDir(t).Configure(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	d := testDir(t)
	if err := os.WriteFile(d.configFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Configure(apiOnly); err == nil || !strings.Contains(err.Error(), "t9k local reset") {
		t.Errorf("a damaged configuration: %v", err)
	}
}

func TestPickNetworksAvoidsUsedOnes(t *testing.T) {
	prefixes := func(list ...string) (p []netip.Prefix) {
		for _, s := range list {
			p = append(p, netip.MustParsePrefix(s))
		}
		return p
	}
	count := 0
	inOrder := func(n int) int { count++; return (count - 1) % n }
	for name, c := range map[string]struct {
		used           []netip.Prefix
		pods, services string
	}{
		"nothing in use":               {nil, "10.160.0.0/24", "10.192.0.0/24"},
		"a pod network in use":         {prefixes("10.160.0.0/23"), "10.160.2.0/24", "10.192.2.0/24"},
		"a service network in use":     {prefixes("10.192.0.1/32"), "10.160.1.0/24", "10.192.1.0/24"},
		"a route to all of 10.0.0.0/8": {prefixes("10.0.0.0/8", "10.192.200.0/24"), "10.160.201.0/24", "10.192.201.0/24"},
	} {
		count = 0
		pods, services, ok := pickNetworks(c.used, inOrder)
		if !ok || pods.String() != c.pods || services.String() != c.services {
			t.Errorf("%s: %s, %s, %v; want %s, %s", name, pods, services, ok, c.pods, c.services)
		}
	}
	if _, _, ok := pickNetworks(prefixes("10.160.0.0/12", "10.176.0.0/12"), inOrder); ok {
		t.Error("picked a network where all are in use")
	}
	if got := subnet(podRange, networkCount-1).String(); got != "10.191.255.0/24" {
		t.Errorf("the last network is %s", got)
	}
}

func TestBridgeNamesDiffer(t *testing.T) {
	a, b := bridgeName("/x/a"), bridgeName("/x/b")
	if a == b || len(a) > 15 || a != bridgeName("/x/a") {
		t.Errorf("%q and %q", a, b)
	}
}

// credentials creates the credentials of a cluster without a node.
func credentials(t *testing.T) (Dir, *Config) {
	t.Helper()
	d := testDir(t)
	c, err := d.Configure(apiOnly)
	if err != nil {
		t.Fatal(err)
	}
	if err := makeCredentials(d, c); err != nil {
		t.Fatal(err)
	}
	return d, c
}

func TestCredentialsAreValid(t *testing.T) {
	d, c := credentials(t)
	ca, _, err := loadKeyPair(d, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	server, _, err := loadKeyPair(d, apiServerPair)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "kubernetes.default.svc", c.gateway().String(), c.apiService().String()} {
		if _, err := server.Verify(x509.VerifyOptions{DNSName: host, Roots: pool}); err != nil {
			t.Errorf("the API server's certificate under %s: %v", host, err)
		}
	}
	config, err := clientcmd.LoadFromFile(d.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server; got != c.APIURL() {
		t.Errorf("the kubeconfig leads to %s, want %s", got, c.APIURL())
	}

}

func TestCredentialsAreKept(t *testing.T) {
	d, c := credentials(t)
	before := readAll(t, d)
	if err := makeCredentials(d, c); err != nil {
		t.Fatal(err)
	}
	for name, data := range readAll(t, d) {
		if before[name] != data {
			t.Errorf("%s was created again", name)
		}
	}

	// If the authority is lost, the authority and every certificate that it signed are renewed. The token key stays.
	if err := os.Remove(d.keyFile("ca")); err != nil {
		t.Fatal(err)
	}
	if err := makeCredentials(d, c); err != nil {
		t.Fatal(err)
	}
	for name, data := range readAll(t, d) {
		if kept := before[name] == data; kept != (name == tokenKey+".key") {
			t.Errorf("%s kept: %v", name, kept)
		}
	}
}

func readAll(t *testing.T, d Dir) map[string]string {
	t.Helper()
	files, err := filepath.Glob(d.join("pki", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	all := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", f, info.Mode(), err)
		}
		all[filepath.Base(f)] = string(data)
	}
	return all
}

func TestCertificatesAreRenewedBeforeTheyExpire(t *testing.T) {
	now := time.Now()
	cert := &x509.Certificate{NotBefore: now, NotAfter: now.Add(certLifetime)}
	for years, want := range map[int]bool{1: true, 8: true, 9: false, 11: false, -1: false} {
		if got := stillValid(cert, now.AddDate(years, 0, 1)); got != want {
			t.Errorf("after %d years: %v", years, got)
		}
	}
}

func TestLockIsExclusive(t *testing.T) {
	d := testDir(t)
	if d.Running() {
		t.Error("an empty directory is reported as running")
	}
	f, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	if !d.Running() {
		t.Error("a locked directory is reported as not running")
	}
	f.Close()
	if d.Running() {
		t.Error("a released directory is reported as running")
	}
}
