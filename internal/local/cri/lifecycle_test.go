package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"

	"tensorstack.dev/batch/test/kit/await"
)

// gate returns a container that waits until the test creates the file called name in dir, and then runs the script end.
func gate(name, dir, end string) *pb.ContainerConfig {
	c := script(name, "echo up; until test -e /gate/"+name+"; do sleep 0.01; done; echo on; "+end)
	c.Mounts = []*pb.Mount{{HostPath: dir, ContainerPath: "/gate"}}
	return c
}

func TestServerTakesOverFromAKilledOne(t *testing.T) {
	cfg := testConfig(t)
	dir := t.TempDir()
	n, process := serverProcess(t, cfg)
	sb, _ := n.sandbox("a")
	lives := n.run(sb, gate("lives", dir, "exit 5"))
	ends := n.run(sb, gate("ends", dir, "exit 7"))
	killed := n.run(sb, gate("killed", dir, "exit 8"))
	created := n.create(sb, script("created", "echo late; exit 9"))
	done := n.run(sb, script("done", "exit 6"))
	n.wantExit(done, 6, "")
	for _, id := range []string{lives, ends, killed} {
		n.wantLog(id, "up\n")
	}
	address := n.sandboxStatus(sb).Network.Ip
	pid := readState(t, cfg, lives).Process.PID

	kill(t, process)
	write(t, dir+"/ends", "")
	victim := readState(t, cfg, killed).Process
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "two containers end without a server", func() bool {
		return !readState(t, cfg, ends).Process.alive() && !victim.alive()
	})

	n = serve(t, cfg)
	if st := n.sandboxStatus(sb); st.State != pb.PodSandboxState_SANDBOX_READY || st.Network.Ip != address {
		t.Errorf("the sandbox is %s at %s, was at %s", st.State, st.Network.Ip, address)
	}
	n.wantExit(ends, 7, "up\non\n")
	n.wantExit(killed, 137, "up\n")
	n.wantExit(done, 6, "")
	if st := n.status(lives); st.State != pb.ContainerState_CONTAINER_RUNNING || readState(t, cfg, lives).Process.PID != pid {
		t.Errorf("the running container is %s", st.State)
	}
	if out, code := n.sync(lives, "cat", "/proc/1/comm"); out != "t9k-shim\n" || code != 0 {
		t.Errorf("exec in it: %q, code %d", out, code)
	}
	n.startAgain(created)
	n.wantExit(created, 9, "late\n")
	write(t, dir+"/lives", "")
	n.wantExit(lives, 5, "up\non\n")
	next, _ := n.sandbox("b")
	if got := n.sandboxStatus(next).Network.Ip; got == address {
		t.Errorf("the next sandbox got %s too", got)
	}
}

// kill kills a server with SIGKILL.
func kill(t *testing.T, server *exec.Cmd) {
	t.Helper()
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // the error reports the signal
}

func readState(t *testing.T, cfg Config, id string) (st containerState) {
	t.Helper()
	if err := readJSON(filepath.Join(cfg.containerDir(id), stateFile), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// A server can die at any line. The following tests create the states on disk that a dead server can leave.

func TestHalfMadeSandboxIsRemoved(t *testing.T) {
	cfg := testConfig(t)
	serve(t, cfg).stop()
	half := newID()
	shm := cfg.sandboxDir(half) + "/shm"
	for _, step := range []func() error{
		func() error { return os.MkdirAll(shm, 0o700) },
		func() error { return mountShm(shm) },
		func() error { return makeNamespaces(cfg.sandboxDir(half), sandboxNamespaces, "x", nil) },
		func() error { return connectToBridge(cfg, half, cfg.Subnet.Addr().Next().Next().String()) },
		func() error { return os.Mkdir(cfg.containerDir(newID()), 0o700) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if got := leftovers(t, cfg); len(got) != 6 { // the bridge, a device, and four mounts
		t.Fatalf("the test created %q", got)
	}
	serve(t, cfg)
	if got := leftovers(t, cfg); len(got) != 1 {
		t.Errorf("remaining: %q", got)
	}
	for _, d := range []string{cfg.sandboxes(), cfg.containers()} {
		if left := must(entryNames(d)); len(left) > 0 {
			t.Errorf("%s still holds %v", d, left)
		}
	}
}

func TestContainerThatWasAboutToStart(t *testing.T) {
	cfg := testConfig(t)
	n := serve(t, cfg)
	sb, _ := n.sandbox("a")
	prepared := n.create(sb, script("prepared", "echo ran; exit 4"))
	n.stop()
	// The shim waits for the byte that starts the command, because its server died before it sent the byte.
	s := loaded(t, cfg)
	c := s.containers[prepared]
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pid, err := s.fork(c, w, r)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.recordShim(c, pid)
	if err != nil {
		t.Fatal(err)
	}

	n = serve(t, cfg)
	if !p.ended() {
		t.Error("the shim that never started its command still runs")
	}
	if st := n.status(prepared); st.State != pb.ContainerState_CONTAINER_CREATED {
		t.Fatalf("the container that was not started is %s", st.State)
	}
	n.startAgain(prepared)
	n.wantExit(prepared, 4, "ran\n")
}

// loaded returns a server that has taken over the state but does not serve.
func loaded(t *testing.T, cfg Config) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := newServer(ctx, cfg)
	var err error
	if s.ids, err = readIDMaps(); err != nil {
		t.Fatal(err)
	}
	if err := s.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestNamespacesAreTakenBackFromContainers(t *testing.T) {
	cfg := testConfig(t)
	n := serve(t, cfg)
	sb, _ := n.sandbox("a")
	empty, _ := n.sandbox("empty")
	id := n.run(sb, script("c", "exec sleep 1000"))
	net, _ := n.sync(id, "readlink", "/proc/self/ns/net")
	n.stop()
	// This is the state after the kernel has removed the mount namespace of a dead server.
	for _, s := range []string{sb, empty} {
		if err := unmountNamespaces(cfg.sandboxDir(s)); err != nil {
			t.Fatal(err)
		}
	}
	n = serve(t, cfg)
	if got := n.output(sb, script("d", "readlink /proc/self/ns/net; touch /dev/shm/x")); got != net {
		t.Errorf("a new container is in %q, the old one in %q", got, net)
	}
	if st := n.sandboxStatus(empty); st.State != pb.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the sandbox without a container is %s", st.State)
	}
	if exists("/sys/class/net/" + vethName(empty)) {
		t.Error("its network device still exists")
	}
}

func TestCleanupLeavesNothing(t *testing.T) {
	cfg := testConfig(t)
	n, process := serverProcess(t, cfg)
	run := func(name, text string, options *pb.NamespaceOption) (sandbox, container string) {
		sandbox, _ = n.sandbox(name, func(c *pb.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = options })
		c := script(name, text)
		c.Linux.SecurityContext.NamespaceOptions = options
		c.Envs = []*pb.KeyValue{{Key: "T9K_TEST", Value: []byte(cfg.Bridge)}}
		container = n.run(sandbox, c)
		n.wantLog(container, "up\n")
		return sandbox, container
	}
	own := &pb.NamespaceOption{Pid: pb.NamespaceMode_CONTAINER}
	host := &pb.NamespaceOption{Network: pb.NamespaceMode_NODE, Pid: pb.NamespaceMode_NODE, Ipc: pb.NamespaceMode_NODE}
	var sandboxes, containers [4]string
	sandboxes[0], containers[0] = run("plain", "echo up; exec sleep 1000", own)
	sandboxes[1], containers[1] = run("stubborn", "trap '' TERM INT HUP; setsid sleep 1001 & echo up; while :; do sleep 0.1; done", own)
	sandboxes[2], containers[2] = run("host", "setsid sh -c 'sleep 1002 & sleep 1003' & echo up; exec sleep 1004", host)
	sandboxes[3], containers[3] = run("shared", "setsid sleep 1005 & echo up; exec sleep 1006", &pb.NamespaceOption{Pid: pb.NamespaceMode_POD})
	// A process that exec starts in a container with the host's PID namespace does not end with the container.
	n.sync(containers[2], "sh", "-c", "setsid sleep 1007 >/dev/null 2>&1 &")
	if got := leftovers(t, cfg); len(got) < 20 {
		t.Fatalf("the test does not find everything: %q", got)
	}
	kill(t, process)
	for range 2 {
		if err := Cleanup(context.WithoutCancel(t.Context()), cfg); err != nil {
			t.Fatal(err)
		}
		if got := leftovers(t, cfg); len(got) > 0 {
			t.Errorf("remaining: %q", got)
		}
	}

	n = serve(t, cfg)
	for i, id := range containers {
		n.wantExit(id, 137, "up\n")
		// A sandbox in the host's namespaces has no namespaces to lose.
		if st := n.sandboxStatus(sandboxes[i]); (st.State == pb.PodSandboxState_SANDBOX_READY) != (i == 2) {
			t.Errorf("sandbox %s is %s", st.Metadata.Name, st.State)
		}
		n.removeSandbox(sandboxes[i])
	}
	for _, d := range []string{cfg.sandboxes(), cfg.containers()} {
		if left := must(entryNames(d)); len(left) > 0 {
			t.Errorf("%s still holds %v", d, left)
		}
	}
}

func TestOnlyOneServerAtATime(t *testing.T) {
	n := start(t)
	shortly, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Serve(shortly, n.cfg); err == nil || !strings.Contains(err.Error(), "another runtime uses") {
		t.Errorf("a second server: %v", err)
	}
	if _, err := n.Version(n.ctx(), &pb.VersionRequest{}); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func TestRemovedPodLeavesNothing(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	n.run(sb, script("c", "exec sleep 1000"))
	n.output(sb, script("d", "echo x > /file"))
	for range 2 {
		if _, err := n.StopPodSandbox(n.ctx(), &pb.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
	}
	if got := leftovers(t, n.cfg); len(got) != 1 || !strings.HasPrefix(got[0], "bridge") {
		t.Errorf("remaining: %q", got)
	}
	for _, d := range []string{n.cfg.sandboxes(), n.cfg.containers()} {
		if left := must(entryNames(d)); len(left) > 0 {
			t.Errorf("%s still holds %v", d, left)
		}
	}
}
