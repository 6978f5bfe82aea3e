package cri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
)

// TestRootless verifies the runtime in a user namespace: it runs TestInsideUserNamespace as root of a user namespace
// that maps one ordinary user of the machine.
func TestRootless(t *testing.T) {
	requireRoot(t)
	const nobody = 65534
	dir, err := os.MkdirTemp("", "t9k-rootless") //nolint:usetesting // other users cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestInsideUserNamespace$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "T9K_TEST_ROOTLESS="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}},
		Credential:  &syscall.Credential{NoSetGroups: true},
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		require.Missing(t, fmt.Sprintf("user namespaces: %v", err))
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestInsideUserNamespace") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInsideUserNamespace(t *testing.T) {
	dir := os.Getenv("T9K_TEST_ROOTLESS")
	if dir == "" {
		t.Skip("TestRootless runs this test")
	}
	setUpLoopback(t)
	cfg := testConfig(t)
	cfg.Rootless = true
	n := serve(t, cfg)
	sb, _ := n.sandbox("a")
	write(t, dir+"/host", "host\n")
	write(t, dir+"/token/token", "token\n")
	c := script("c", `set -e
		cat $D/host; echo changed > $D/host; cat $D/host; echo x > $D/new; echo x > /tmp/t9k-test; mkdir /t9k-test; echo x > $HOME/t9k-test
		cat /var/run/secrets/kubernetes.io/serviceaccount/token /usr/lib/t9k/token /opt/made/token /etc/hostname
		id -u; echo > /dev/null; ls /sys/class/net; hostname; pwd; ls -A $MASK | wc -l`)
	c.WorkingDir = "/work/dir"
	c.Envs = []*pb.KeyValue{{Key: "D", Value: []byte(dir)}, {Key: "MASK", Value: []byte(cfg.Mask)}}
	for _, d := range []string{"/var/run/secrets/kubernetes.io/serviceaccount", "/usr/lib/t9k", "/opt/made"} {
		c.Mounts = append(c.Mounts, &pb.Mount{HostPath: dir + "/token", ContainerPath: d, Readonly: true})
	}
	want := "host\nchanged\n" + strings.Repeat("token\n", 3) + "a\n0\neth0\nlo\na\n/work/dir\n0\n"
	if got := n.output(sb, c); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if read(t, dir+"/host") != "host\n" || exists(dir+"/new") || exists("/tmp/t9k-test") || exists("/t9k-test") {
		t.Error("the host was written to")
	}

	id := n.run(sb, script("sleeper", "exec sleep 1000"))
	if out, code := n.sync(id, "sh", "-c", "hostname; tail -n 1 /etc/resolv.conf; exit 3"); out != "a\noptions ndots:5\n" || code != 3 {
		t.Errorf("exec: %q, code %d", out, code)
	}
	refusesForeignIDs(t, n, sb)
	ro := script("ro", "touch /x /usr/x /tmp/x 2>/dev/null || echo read-only; touch /vol/x; echo end")
	ro.Linux.SecurityContext.ReadonlyRootfs = true
	ro.Mounts = []*pb.Mount{{HostPath: filepath.Join(dir, "vol"), ContainerPath: "/vol"}}
	if got := n.output(sb, ro); got != "read-only\nend\n" {
		t.Errorf("read-only root: %q", got)
	}
	n.stop()
	if err := Cleanup(context.WithoutCancel(t.Context()), cfg); err != nil {
		t.Fatal(err)
	}
	if got := leftovers(t, cfg); len(got) > 0 {
		t.Errorf("remaining: %q", got)
	}
}

func setUpLoopback(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
}

func refusesForeignIDs(t *testing.T, n *node, sb string) {
	t.Helper()
	for what, sc := range map[string]*pb.LinuxContainerSecurityContext{
		"runAsUser 1000":                 {RunAsUser: &pb.Int64Value{Value: 1000}},
		"supplementalGroups 2000":        {SupplementalGroups: []int64{2000}},
		"supplementary groups ([0]) are": {SupplementalGroups: []int64{0}},
	} {
		c := script("c", "true")
		c.Linux.SecurityContext = sc
		_, err := n.CreateContainer(n.ctx(), &pb.CreateContainerRequest{PodSandboxId: sb, Config: c})
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "user namespace") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLayersInMemory verifies that containers run if the state directory is on an overlay, which cannot hold the upper
// layer of another overlay.
func TestLayersInMemory(t *testing.T) {
	cfg := testConfig(t)
	dir := t.TempDir()
	tmpfs(t, dir)
	for _, d := range []string{"/lower", "/upper", "/work", "/merged"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", dir+"/merged", "overlay", 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work"); err != nil {
		require.Missing(t, "overlay mounts: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(dir+"/merged", unix.MNT_DETACH) })
	cfg.Root = dir + "/merged/cri"
	n := serve(t, cfg)
	sb, _ := n.sandbox("a")
	id := n.run(sb, script("c", "echo x > /file; cat /file; stat -f -c %T /; exec sleep 1000"))
	await.That(t, "the script runs", func() bool { return n.log(id) == "x\noverlayfs\n" })
	if _, err := n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	n.stop()
	if err := Cleanup(context.WithoutCancel(t.Context()), cfg); err != nil {
		t.Fatal(err)
	}
}
