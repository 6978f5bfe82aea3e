package cri

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"

	"tensorstack.dev/batch/test/kit/await"
)

func TestAddressesAreReusedAsLateAsPossible(t *testing.T) {
	subnet := netip.MustParsePrefix("10.9.8.3/29") // .8.0 is the network, .8.3 the bridge, .8.7 the broadcast address
	used := map[netip.Addr]string{}
	last := subnet.Addr()
	var got []string
	for range 7 {
		a, err := nextAddress(subnet, last, used)
		if err != nil {
			t.Fatal(err)
		}
		got, last = append(got, a.String()), a
	}
	want := "10.9.8.4 10.9.8.5 10.9.8.6 10.9.8.1 10.9.8.2 10.9.8.4 10.9.8.5"
	if strings.Join(got, " ") != want {
		t.Errorf("addresses %v, want %s", got, want)
	}
	for _, a := range got {
		used[netip.MustParseAddr(a)] = "x"
	}
	if a, err := nextAddress(subnet, last, used); err == nil {
		t.Errorf("with all in use: %s", a)
	}
	delete(used, netip.MustParseAddr("10.9.8.2"))
	if a, err := nextAddress(subnet, last, used); err != nil || a.String() != "10.9.8.2" {
		t.Errorf("with one left: %s, %v", a, err)
	}
	wide := netip.MustParsePrefix("10.160.0.1/16")
	if a, err := nextAddress(wide, netip.MustParseAddr("10.160.0.255"), used); err != nil || a.String() != "10.160.1.0" {
		t.Errorf("in a wide subnet: %s, %v", a, err)
	}
}

func TestPodsReachEachOther(t *testing.T) {
	n := start(t)
	a, _ := n.sandbox("a")
	b, _ := n.sandbox("b")
	ip := func(sb string) string {
		r, err := n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: sb})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status.Network.Ip
	}
	if ip(a) == ip(b) || !n.cfg.Subnet.Contains(netip.MustParseAddr(ip(a))) {
		t.Fatalf("addresses %s and %s", ip(a), ip(b))
	}
	play := func(name, role, address string) *pb.ContainerConfig {
		c := script(name, "exec "+testProgram(t))
		c.Envs = []*pb.KeyValue{{Key: "T9K_TEST_ROLE", Value: []byte(role)}, {Key: "T9K_TEST_ADDRESS", Value: []byte(address)}}
		return c
	}
	server := n.run(a, play("server", "echo", ":7000"))
	await.That(t, "the server listens", func() bool { return n.log(server) == "listening\n" })
	if got := n.output(b, play("client", "ask", ip(a)+":7000")); got != "word\n" {
		t.Errorf("over the bridge: %q", got)
	}
	if got := n.output(a, play("neighbour", "ask", "127.0.0.1:7000")); got != "word\n" {
		t.Errorf("within the pod: %q", got)
	}
	_, port, _ := strings.Cut(n.streamAddress(), ":")
	if st := n.exited(n.run(b, play("stranger", "ask", "127.0.0.1:"+port))); st.ExitCode != 1 {
		t.Error("the pod reaches a port of the host's 127.0.0.1")
	}
}

// TestPodsLeaveTheHostsAddressesUnchanged verifies that the bridge and the pod's device on the host get no IPv6 address
// when a pod starts. A new address would make a browser on the host abort its requests with ERR_NETWORK_CHANGED.
func TestPodsLeaveTheHostsAddressesUnchanged(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	for _, device := range []string{n.cfg.Bridge, vethName(sb)} {
		await.That(t, device+" has a carrier", func() bool {
			state, err := os.ReadFile("/sys/class/net/" + device + "/operstate")
			return err == nil && string(state) == "up\n"
		})
		link, err := netlink.LinkByName(device)
		if err != nil {
			t.Fatal(err)
		}
		// The kernel adds the address when the device gets its carrier.
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			t.Fatal(err)
		}
		if len(addresses) > 0 {
			t.Errorf("%s has the addresses %v", device, addresses)
		}
	}
}

// testProgram returns this program's path, which containers see as the host does.
func testProgram(t *testing.T) string {
	t.Helper()
	p, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// streamAddress returns the address on the host's loopback device at which the server listens for streams.
func (n *node) streamAddress() string {
	n.t.Helper()
	sb, _ := n.sandbox("url")
	r, err := n.PortForward(n.ctx(), &pb.PortForwardRequest{PodSandboxId: sb, Port: []int32{1}})
	if err != nil {
		n.t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(r.Url, "http://"), "/")
	return address
}

func TestForeignBridgeIsLeftAlone(t *testing.T) {
	cfg := testConfig(t)
	other := cfg
	other.Root += "-other"
	other.Socket += "-other" // a server that stops removes its socket, perhaps only after the next server listens
	serve(t, other).stop()
	t.Cleanup(func() {
		if err := Cleanup(context.WithoutCancel(t.Context()), other); err != nil {
			t.Error(err)
		}
	})
	// A server uses a foreign bridge with the same name and address, but Cleanup does not remove it.
	serve(t, cfg).stop()
	if err := Cleanup(context.WithoutCancel(t.Context()), cfg); err != nil {
		t.Fatal(err)
	}
	if !exists("/sys/class/net/" + cfg.Bridge) {
		t.Error("the foreign bridge was removed")
	}
	cfg.Subnet = netip.MustParsePrefix("10.250.0.1/30")
	if err := Serve(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not ours to change") {
		t.Errorf("a bridge without the address: %v", err)
	}
}

func TestNamespacesOfTheProgramStay(t *testing.T) {
	requireRoot(t)
	before := programNamespaces(t)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWNS) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if after := programNamespaces(t); after != before {
		t.Errorf("the program's namespaces are %s, were %s", after, before)
	}
}

func programNamespaces(t *testing.T) (out string) {
	t.Helper()
	for _, k := range []string{"net", "uts", "mnt"} {
		link, err := os.Readlink("/proc/self/ns/" + k)
		if err != nil {
			t.Fatal(err)
		}
		out += link
	}
	return out
}
