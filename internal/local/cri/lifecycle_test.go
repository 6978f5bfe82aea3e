package cri

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// gate is a script that runs until the test makes a file.
func gate(name, dir, end string) *pb.ContainerConfig {
	c := script(name, "echo up; until test -e /gate/"+name+"; do sleep 0.01; done; echo on; "+end)
	c.Mounts = []*pb.Mount{{HostPath: dir, ContainerPath: "/gate"}}
	return c
}

func TestKilledServerIsSucceeded(t *testing.T) {
	cfg := testConfig(t)
	dir := t.TempDir()
	n, process := serverProcess(t, cfg)
	sb, _ := n.sandbox("a")
	lives := n.run(sb, gate("lives", dir, "exit 5"))
	ends := n.run(sb, gate("ends", dir, "exit 7"))
	killed := n.run(sb, gate("killed", dir, "exit 8"))
	created := n.create(sb, script("created", "exit 9"))
	done := n.run(sb, script("done", "exit 6"))
	if st := n.exited(done); st.ExitCode != 6 {
		t.Fatalf("exit code %d", st.ExitCode)
	}
	for _, id := range []string{lives, ends, killed} {
		eventually(t, "the script is up", func() bool { return n.log(id) == "up\n" })
	}
	before, err := n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	pid := readState(t, cfg, lives).Process.PID
	victim := readState(t, cfg, killed).Process

	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	write(t, dir+"/ends", "")
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two containers end without a server", func() bool {
		_, e1 := readState(t, cfg, ends).Process.open()
		_, e2 := victim.open()
		return e1 != nil && e2 != nil
	})

	n = serve(t, cfg)
	after, err := n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	if after.Status.State != pb.PodSandboxState_SANDBOX_READY || after.Status.Network.Ip != before.Status.Network.Ip {
		t.Errorf("the sandbox is %s at %s, was at %s", after.Status.State, after.Status.Network.Ip, before.Status.Network.Ip)
	}
	if st := n.status(lives); st.State != pb.ContainerState_CONTAINER_RUNNING || readState(t, cfg, lives).Process.PID != pid {
		t.Errorf("the running container is %s", st.State)
	}
	if out, code := n.sync(lives, "cat", "/proc/1/comm"); out != "t9k-shim\n" || code != 0 {
		t.Errorf("exec in it: %q, code %d", out, code)
	}
	for id, want := range map[string]int32{ends: 7, killed: 137, done: 6} {
		if st := n.status(id); st.State != pb.ContainerState_CONTAINER_EXITED || st.ExitCode != want {
			t.Errorf("%s is %s with code %d, want %d", st.Metadata.Name, st.State, st.ExitCode, want)
		}
	}
	if _, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: created}); err != nil {
		t.Errorf("starting the created container: %v", err)
	}
	if st := n.exited(created); st.ExitCode != 9 {
		t.Errorf("its exit code is %d", st.ExitCode)
	}
	write(t, dir+"/lives", "")
	if st := n.exited(lives); st.ExitCode != 5 || n.log(lives) != "up\non\n" {
		t.Errorf("the adopted container ended with code %d and log %q", st.ExitCode, n.log(lives))
	}
	next, _ := n.sandbox("b")
	st, err := n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: next})
	if err != nil || st.Status.Network.Ip == before.Status.Network.Ip {
		t.Errorf("the next sandbox got %v, %v", st, err)
	}
}

func readState(t *testing.T, cfg Config, id string) (st containerState) {
	t.Helper()
	if err := readJSON(filepath.Join(cfg.containerDir(id), stateFile), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// A server can die at any line; these are the states on disk between the lines that matter.
func TestHalfMadeThingsAreSettled(t *testing.T) {
	cfg := testConfig(t)
	n := serve(t, cfg)
	sb, _ := n.sandbox("a")
	prepared := n.create(sb, script("prepared", "echo ran; exit 4"))
	n.stop()
	s := loaded(t, cfg)

	half := newID()
	if err := os.MkdirAll(cfg.sandboxDir(half)+"/shm", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := mountShm(cfg.sandboxDir(half) + "/shm"); err != nil {
		t.Fatal(err)
	}
	if err := makeNamespaces(cfg.sandboxDir(half), sandboxNamespaces, "x", nil); err != nil {
		t.Fatal(err)
	}
	if err := plug(cfg, half, cfg.Subnet.Addr().Next().Next().Next().String()); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(cfg.containerDir(newID()), "spec.json"), "{}")

	// The shim waits for its start, which its server did not live to give.
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
	p, err := s.record(c, pid)
	if err != nil {
		t.Fatal(err)
	}

	n = serve(t, cfg)
	if !p.ended() {
		t.Error("the shim that never started its command is still there")
	}
	if st := n.status(prepared); st.State != pb.ContainerState_CONTAINER_CREATED {
		t.Fatalf("the container that was not started is %s", st.State)
	}
	if _, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: prepared}); err != nil {
		t.Fatal(err)
	}
	if st := n.exited(prepared); st.ExitCode != 4 || n.log(prepared) != "ran\n" {
		t.Errorf("it ended with code %d and log %q", st.ExitCode, n.log(prepared))
	}
	if exists(cfg.sandboxDir(half)) || exists("/sys/class/net/"+veth(half)) {
		t.Error("the half-made sandbox is still there")
	}
	ids, err := names(cfg.containers())
	if err != nil || !slices.Equal(ids, []string{prepared}) {
		t.Errorf("containers on disk: %v, %v", ids, err)
	}
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
	if err := s.adopt(); err != nil {
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
	// As when the server's mount namespace ended with it.
	for _, s := range []string{sb, empty} {
		if err := release(cfg.sandboxDir(s)); err != nil {
			t.Fatal(err)
		}
	}
	n = serve(t, cfg)
	if got := n.output(sb, script("d", "readlink /proc/self/ns/net; touch /dev/shm/x")); got != net {
		t.Errorf("a new container is in %q, the old one in %q", got, net)
	}
	st, err := n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: empty})
	if err != nil || st.Status.State != pb.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the sandbox without a container: %v, %v", st, err)
	}
	if exists("/sys/class/net/" + veth(empty)) {
		t.Error("its network device is still there")
	}
}

func TestCleanupLeavesNothing(t *testing.T) {
	cfg := testConfig(t)
	n, process := serverProcess(t, cfg)
	mark := func(c *pb.ContainerConfig) *pb.ContainerConfig {
		c.Envs = []*pb.KeyValue{{Key: "T9K_TEST", Value: []byte(cfg.Bridge)}}
		return c
	}
	sb, _ := n.sandbox("a")
	ids := []string{
		n.run(sb, mark(script("plain", "echo up; exec sleep 1000"))),
		n.run(sb, mark(script("stubborn", "trap '' TERM INT HUP; setsid sleep 1001 & echo up; while :; do sleep 0.1; done"))),
	}
	host := &pb.NamespaceOption{Network: pb.NamespaceMode_NODE, Pid: pb.NamespaceMode_NODE, Ipc: pb.NamespaceMode_NODE}
	hostSandbox, _ := n.sandbox("host", func(c *pb.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = host })
	c := mark(script("host", "setsid sh -c 'sleep 1002 & sleep 1003' & echo up; exec sleep 1004"))
	c.Linux.SecurityContext.NamespaceOptions = host
	ids = append(ids, n.run(hostSandbox, c))
	shared := &pb.NamespaceOption{Pid: pb.NamespaceMode_POD}
	sharedSandbox, _ := n.sandbox("shared", func(c *pb.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = shared })
	c = mark(script("shared", "setsid sleep 1005 & echo up; exec sleep 1006"))
	c.Linux.SecurityContext.NamespaceOptions = shared
	ids = append(ids, n.run(sharedSandbox, c))
	for _, id := range ids {
		eventually(t, "the script is up", func() bool { return n.log(id) == "up\n" })
	}
	// A process started by exec that the PID namespace does not end.
	n.sync(ids[2], "sh", "-c", "setsid sleep 1007 >/dev/null 2>&1 &")
	if got := leftovers(t, cfg); len(got) < 10 {
		t.Fatalf("the test does not see what there is: %q", got)
	}
	patience, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(patience, cfg.Root); err == nil {
		t.Fatal("the state of a living server is not locked")
	}

	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	for range 2 {
		if err := Cleanup(cfg); err != nil {
			t.Fatal(err)
		}
		if got := leftovers(t, cfg); len(got) > 0 {
			t.Errorf("left over: %q", got)
		}
	}

	n = serve(t, cfg)
	for _, id := range ids {
		if st := n.status(id); st.State != pb.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
			t.Errorf("%s is %s with code %d", st.Metadata.Name, st.State, st.ExitCode)
		}
	}
	list, err := n.ListPodSandbox(n.ctx(), &pb.ListPodSandboxRequest{Filter: &pb.PodSandboxFilter{
		State: &pb.PodSandboxStateValue{State: pb.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if s.Id != hostSandbox { // it has nothing that could be gone
			t.Errorf("sandbox %s is ready", s.Metadata.Name)
		}
	}
	for _, s := range []string{sb, hostSandbox, sharedSandbox} {
		if _, err := n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: s}); err != nil {
			t.Error(err)
		}
	}
	for _, d := range []string{cfg.sandboxes(), cfg.containers()} {
		if left := must(names(d)); len(left) > 0 {
			t.Errorf("%s still holds %v", d, left)
		}
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
		t.Errorf("left over: %q", got)
	}
	for _, d := range []string{n.cfg.sandboxes(), n.cfg.containers()} {
		if left := must(names(d)); len(left) > 0 {
			t.Errorf("%s still holds %v", d, left)
		}
	}
}
