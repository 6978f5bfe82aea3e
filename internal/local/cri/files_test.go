package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// tmpfs mounts a tmpfs until the end of the test.
func tmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHostFilesAreSeenAndNeverWritten(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other file system")
	tmpfs(t, other)
	for _, d := range []string{dir, other} {
		write(t, d+"/kept", "host\n")
		write(t, d+"/removed", "host\n")
	}
	n := start(t)
	sb, _ := n.sandbox("a")
	c := script("c", `set -e
		for d in "$D" "$D/other file system"; do
			cat "$d/kept" "$d/removed"
			echo container > "$d/kept"; rm "$d/removed"; echo new > "$d/new"
			cat "$d/kept" "$d/new"; ls "$d/removed" 2>/dev/null || echo gone
		done
		touch /t9k-test-file /usr/t9k-test-file /tmp/t9k-test-file /dev/t9k-test-file /etc/t9k-test-file
		rm /etc/passwd /usr/bin/env
		mknod /root/t9k-disk b 1 0 && ! head -c 1 /root/t9k-disk 2>/dev/null && echo no device
		mount -t tmpfs none /mnt 2>/dev/null || echo no mount
		(echo 1 > /proc/sys/vm/drop_caches) 2>/dev/null || echo no sysctl
		ls /sys/class/net`)
	c.Envs = []*pb.KeyValue{{Key: "D", Value: []byte(dir)}}
	c.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys", "/proc/does-not-exist"}
	each := strings.Repeat("host\n", 2) + "container\nnew\ngone\n"
	if diff := cmp.Diff(each+each+"no device\nno mount\nno sysctl\neth0\nlo\n", n.output(sb, c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, d := range []string{dir, other} {
		if read(t, d+"/kept") != "host\n" || read(t, d+"/removed") != "host\n" || exists(d+"/new") {
			t.Errorf("the host's %s was changed", d)
		}
	}
	for _, p := range []string{"/t9k-test-file", "/usr/t9k-test-file", "/tmp/t9k-test-file", "/dev/t9k-test-file", "/etc/t9k-test-file", "/root/t9k-disk"} {
		if exists(p) {
			t.Errorf("%s was created on the host", p)
		}
	}
	if !exists("/etc/passwd") || !exists("/usr/bin/env") {
		t.Error("a file of the host no longer exists")
	}
	c2 := script("second", "ls /t9k-test-file 2>&1; exec cat /proc/self/mounts")
	if out := n.output(sb, c2); !strings.Contains(out, "No such file") {
		t.Errorf("another container sees the first one's files:\n%s", out)
	}
}

func TestStateIsHidden(t *testing.T) {
	n := start(t)
	secret := filepath.Join(n.cfg.Mask, "keys", "ca.key")
	write(t, secret, "secret")
	sb, _ := n.sandbox("a")
	above := filepath.Dir(n.cfg.Mask)
	c := script("c", `ls -A $MASK | wc -l; cat $MASK/keys/ca.key /vol/state/keys/ca.key /link/keys/ca.key 2>/dev/null || echo hidden; ls /vol`)
	c.Envs = []*pb.KeyValue{{Key: "MASK", Value: []byte(n.cfg.Mask)}}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(n.cfg.Mask, link); err != nil {
		t.Fatal(err)
	}
	c.Mounts = []*pb.Mount{{HostPath: above, ContainerPath: "/vol"}, {HostPath: link, ContainerPath: "/link"}}
	if got, want := n.output(sb, c), "0\nhidden\ncri.sock\nlogs\nstate\n"; got != want {
		t.Errorf("the container sees %q, want %q", got, want)
	}
}

func TestVolumesAreMounted(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	tmpfs(t, dir+"/memory")
	write(t, dir+"/data/file", "data\n")
	write(t, dir+"/config/key", "value\n")
	write(t, dir+"/one", "one\n")
	sb, _ := n.sandbox("a")
	c := script("c", `set -e
		echo written > /data/out; echo log > /data/sub/deep/log; stat -f -c %T /memory; echo m > /memory/m
		cat /etc/config/key /etc/one; touch /etc/config/x 2>/dev/null || echo read-only
		cat /var/run/secrets/token; readlink /var/run || true; stat -c %a /made; cat /dev/termination-log; echo end > /dev/termination-log`)
	write(t, dir+"/nested/x", "")
	write(t, dir+"/term", "begin\n")
	write(t, dir+"/token/token", "token\n")
	c.Mounts = []*pb.Mount{
		{ContainerPath: "/data/sub/deep", HostPath: dir + "/nested"}, // before its parent
		{ContainerPath: "/data", HostPath: dir + "/data"},
		{ContainerPath: "/memory", HostPath: dir + "/memory"},
		{ContainerPath: "/etc/config", HostPath: dir + "/config", Readonly: true},
		{ContainerPath: "/etc/one", HostPath: dir + "/one", Readonly: true},
		{ContainerPath: "/var/run/secrets", HostPath: dir + "/token", Readonly: true},
		{ContainerPath: "/made", HostPath: dir + "/made/by/runtime"},
		{ContainerPath: "/dev/termination-log", HostPath: dir + "/term"},
	}
	got := n.output(sb, c)
	run, _ := os.Readlink("/var/run")
	if run != "" {
		run += "\n"
	}
	if diff := cmp.Diff("tmpfs\nvalue\none\nread-only\ntoken\n"+run+"755\nbegin\n", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"/data/out": "written\n", "/nested/log": "log\n", "/memory/m": "m\n", "/term": "end\n"} {
		if got := read(t, dir+path); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	if exists("/var/run/secrets/token") {
		t.Error("a mount point appeared on the host")
	}
}

func TestMountsFollowTheirPropagation(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	tmpfs(t, dir)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/late", "/own"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sb, _ := n.sandbox("a")
	config := script("c", "echo up; exec sleep 1000")
	config.Linux.SecurityContext.Privileged = true
	config.Mounts = []*pb.Mount{
		{ContainerPath: "/private", HostPath: dir},
		{ContainerPath: "/slave", HostPath: dir, Propagation: pb.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		{ContainerPath: "/shared", HostPath: dir, Propagation: pb.MountPropagation_PROPAGATION_BIDIRECTIONAL},
	}
	id := n.run(sb, config)
	tmpfs(t, dir+"/late")
	write(t, dir+"/late/file", "")
	for path, want := range map[string]int32{"/private": 1, "/slave": 0, "/shared": 0} {
		if _, code := n.sync(id, "test", "-e", path+"/late/file"); code != want {
			t.Errorf("a later mount on the host, at %s: exit code %d, want %d", path, code, want)
		}
	}
	if out, code := n.sync(id, "mount", "-t", "tmpfs", "own", "/shared/own"); code != 0 {
		t.Fatal(out)
	}
	if !isMount(dir + "/own") {
		t.Error("a mount made in the container is not on the host")
	}
	_ = unix.Unmount(dir+"/own", unix.MNT_DETACH)
}

func TestReadOnlyRoot(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	tmpfs(t, dir+"/other")
	sb, _ := n.sandbox("a")
	c := script("c", `for d in / /usr /tmp /etc "$D/other"; do touch $d/x 2>/dev/null && echo wrote $d; done
		touch /vol/x /dev/shm/x && ls /vol /proc/self/comm; echo x > /dev/null && echo end`)
	c.Envs = []*pb.KeyValue{{Key: "D", Value: []byte(dir)}}
	c.Mounts = []*pb.Mount{{ContainerPath: "/vol", HostPath: dir + "/vol"}}
	c.Linux.SecurityContext.ReadonlyRootfs = true
	if got, want := n.output(sb, c), "/proc/self/comm\n\n/vol:\nx\nend\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMaskedPathsAndDevices(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	c := script("c", `wc -c < /proc/version; ls /proc/irq | wc -l; ls /dev/mapped; test -b /dev/vda && echo disk; stat -c %F /dev/null /dev/tty; true`)
	c.Linux.SecurityContext.MaskedPaths = []string{"/proc/version", "/proc/irq", "/proc/does-not-exist"}
	c.Devices = []*pb.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/mapped", Permissions: "rwm"}}
	if got, want := n.output(sb, c), "0\n0\n/dev/mapped\ncharacter special file\ncharacter special file\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSharedMemoryIsThePods(t *testing.T) {
	n := start(t)
	a, _ := n.sandbox("a")
	b, _ := n.sandbox("b")
	n.output(a, script("one", "echo x > /dev/shm/t9k-test"))
	if got := n.output(a, script("two", "cat /dev/shm/t9k-test")); got != "x\n" {
		t.Errorf("in the same pod: %q", got)
	}
	if st := n.exited(n.run(b, script("three", "cat /dev/shm/t9k-test"))); st.ExitCode == 0 {
		t.Error("another pod sees it too")
	}
	if exists("/dev/shm/t9k-test") {
		t.Error("the host sees it too")
	}
}
