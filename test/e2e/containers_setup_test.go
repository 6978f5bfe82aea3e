package e2e

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	containerdcheck "tensorstack.dev/batch/internal/local/containerd"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/program"
)

var withContainers = flag.Bool("containers", false, "run the tests that need containerd and the images (make e2e-containers)")

// chartDir is the directory of the chart.
const chartDir = "../../charts/t9k-batch"

// containerTools holds the programs and files of the machine that the container tests need.
type containerTools struct {
	// busybox is the path of a statically linked busybox.
	busybox string
	// plugins is the directory of the CNI plugins.
	plugins   string
	helm, t9k string
	// images is the directory that `make images` writes.
	images string
}

// requireContainers finds the programs and files that the tests with containers require, and sets up the loopback
// interface as requireNetworkNamespace does. It skips the test unless -containers is set. If the machine lacks
// something, it skips the test, or fails it if all requirements must be met. It fails the test if HELM, T9K or
// T9K_IMAGES is unset.
func requireContainers(t *testing.T) containerTools {
	t.Helper()
	if !*withContainers {
		t.Skip("installs the chart in a cluster of containers: make e2e-containers")
	}
	require.Root(t)
	requireNetworkNamespace(t)
	requireCluster(t)
	for _, name := range []string{"containerd", "runc", "ctr"} {
		if _, err := exec.LookPath(name); err != nil {
			require.Missing(t, name+" (Debian: apt-get install --no-install-recommends containerd runc)")
		}
	}
	tools := containerTools{helm: os.Getenv("HELM"), t9k: os.Getenv("T9K"), images: os.Getenv("T9K_IMAGES")}
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			tools.plugins = dir
		}
	}
	if tools.plugins == "" {
		require.Missing(t, "CNI plugins (Debian: apt-get install containernetworking-plugins)")
	}
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		// ldd fails for static programs.
		if exec.Command("ldd", path).Run() != nil && exec.Command(path, "true").Run() == nil {
			tools.busybox = path
		}
	}
	if tools.busybox == "" {
		require.Missing(t, "a static busybox (Debian: apt-get install busybox-static)")
	}
	if tools.helm == "" || tools.t9k == "" || tools.images == "" {
		t.Fatal("HELM and T9K must name Helm's program and ours, and T9K_IMAGES the folder of images: use make e2e-containers")
	}
	return tools
}

// requireNetworkNamespace fails the test unless it runs in a separate network namespace, and sets up the loopback
// interface there. The bridge of the pods and the rules of the network policy controller disappear with the namespace,
// and no other cluster sees them.
func requireNetworkNamespace(t *testing.T) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if first, err := os.Readlink("/proc/1/ns/net"); err == nil && own == first {
		t.Fatal("the test changes the rules of its network namespace, which must not be the machine's: use make e2e-containers")
	}
	loopback, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(loopback) // the loopback interface is down in a new namespace
	}
	if err != nil {
		t.Fatal("setting up the loopback device: ", err)
	}
}

// runHelm runs Helm, and fails the test if Helm fails.
func (c containerTools) runHelm(t *testing.T, kubeconfig string, args ...string) {
	t.Helper()
	cmd := exec.Command(c.helm, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	home := t.TempDir()
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		cmd.Env = append(cmd.Env, name+"="+home)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// containerd is a separate containerd for the test. Its settings, data and network are independent of a containerd of
// the machine.
type containerd struct {
	tools       containerTools
	dir, socket string
	bridge      string
	program     *program.Program
}

// containerdConfig is the configuration of containerd. It allows for machines that deny a negative oom_score_adj, such
// as some virtual machines.
const containerdConfig = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[1]s/containerd.sock"
[ttrpc]
  address = "%[1]s/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "` + pauseImage + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%[2]s"
    conf_dir = "%[1]s/cni"
`

// cniConfig connects pods with a bridge that the test creates. If the plugin made the bridge a gateway, it would enable
// packet forwarding, which the embedded cluster does not need.
const cniConfig = `{"cniVersion": "0.4.0", "name": "t9k-test", "plugins": [{"type": "bridge", "bridge": "%s", "ipam": {
  "type": "host-local", "dataDir": "%s/addresses", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// startContainerd starts a containerd with a network for pods. The containerd is stopped at the end of the test; a
// cluster that uses it must stop earlier. Before startContainerd adds the network, it verifies that the check of t9k
// local reports that the network is missing.
func startContainerd(t *testing.T, tools containerTools) *containerd {
	t.Helper()
	dir, err := os.MkdirTemp("", "t9k-node-") //nolint:usetesting // the path of t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	d := &containerd{tools: tools, dir: dir, socket: dir + "/containerd.sock", bridge: fmt.Sprintf("t9n%d", os.Getpid())}
	t.Cleanup(func() { d.remove(t) })
	text := fmt.Sprintf(containerdConfig, dir, tools.plugins)
	if err := os.WriteFile(d.dir+"/config.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.dir+"/cni", 0o755); err != nil {
		t.Fatal(err)
	}
	d.start(t)
	err = containerdcheck.Check(t.Context(), d.socket, dir)
	if err == nil || !strings.Contains(err.Error(), "it has no network for pods") {
		t.Errorf("a containerd without a network: %v", err)
	}
	d.connect(t)
	return d
}

// start starts containerd and waits until it answers.
func (d *containerd) start(t *testing.T) {
	t.Helper()
	var err error
	if d.program, err = program.Start("containerd", []string{"--config", d.dir + "/config.toml"}, nil); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "containerd answers", func() error {
		if !d.program.Running() {
			t.Fatalf("containerd has ended:\n%s", program.Tail(d.program.Log.String()))
		}
		return exec.Command("ctr", "--address", d.socket, "version").Run()
	})
}

// restart kills containerd and starts it again.
func (d *containerd) restart(t *testing.T) {
	t.Helper()
	d.program.Kill()
	d.start(t)
}

// connect creates the bridge of the pods and makes containerd use it.
func (d *containerd) connect(t *testing.T) {
	t.Helper()
	subnet := &net.IPNet{IP: net.IPv4(10, 250, byte(os.Getpid()%250), 0), Mask: net.CIDRMask(24, 32)}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = d.bridge
	// Without a fixed hardware address, the bridge takes the address of one of its ports and changes it as pods come
	// and go. The other pods then send to the old address for half a minute.
	attributes.HardwareAddr = net.HardwareAddr{2, 't', '9', 'k', 0, 1}
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	gateway := &net.IPNet{IP: net.IPv4(10, 250, byte(os.Getpid()%250), 1), Mask: subnet.Mask}
	for _, do := range []func() error{
		func() error { return netlink.LinkAdd(bridge) },
		func() error { return netlink.AddrAdd(bridge, &netlink.Addr{IPNet: gateway}) },
		func() error { return netlink.LinkSetUp(bridge) },
		func() error {
			return os.WriteFile(d.dir+"/cni/10-test.conflist", []byte(fmt.Sprintf(cniConfig, d.bridge, d.dir, subnet)), 0o600)
		},
	} {
		if err := do(); err != nil {
			t.Fatal("connecting the pods: ", err)
		}
	}
	await.Until(t, "containerd has a network", func() error { return containerdcheck.Check(t.Context(), d.socket, d.dir) })
}

// ctr runs a command of containerd's client in the namespace of the kubelet, and returns its output.
func (d *containerd) ctr(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.tryCtr(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (d *containerd) tryCtr(args ...string) (string, error) {
	out, err := exec.Command("ctr", append([]string{"--address", d.socket, "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ctr %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// signal sends a signal to the main process of a container.
func (d *containerd) signal(t *testing.T, id, signal string) {
	t.Helper()
	if err := d.trySignal(id, signal); err != nil {
		t.Fatal(err)
	}
}

func (d *containerd) trySignal(id, signal string) error {
	_, err := d.tryCtr("task", "kill", "--signal", signal, strings.TrimPrefix(id, "containerd://"))
	return err
}

// remove stops containerd and removes its files, mounts and bridge. The pods were deleted with the cluster.
func (d *containerd) remove(t *testing.T) {
	if d.program != nil {
		if t.Failed() {
			t.Logf("containerd's log ends with:\n%s", program.Tail(d.program.Log.String()))
		}
		d.program.Signal(syscall.SIGTERM)
		<-d.program.Ended()
	}
	if link, err := netlink.LinkByName(d.bridge); err == nil {
		if err := netlink.LinkDel(link); err != nil {
			t.Error("removing the bridge: ", err)
		}
	}
	for _, m := range mountsBelow(t, d.dir) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", m, err)
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		t.Error(err)
	}
}
