package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"

	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/test/kit/await"
)

// node is a server under test with a client.
type node struct {
	pb.RuntimeServiceClient
	images pb.ImageServiceClient
	t      testing.TB
	cfg    Config
	logs   string
	stop   context.CancelFunc
}

var subnets atomic.Int32

// requireRoot skips the test unless it runs as root and can create namespaces.
func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Missing(t, "root, for mounts, network devices and namespaces")
	}
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		require.Missing(t, "mount, PID and network namespaces: "+err.Error())
	}
}

// testConfig returns a configuration with random names and addresses, so that servers of other tests do not use them.
// It calls Cleanup at the end of the test.
func testConfig(t testing.TB) Config {
	t.Helper()
	requireRoot(t)
	dir := t.TempDir()
	b := make([]byte, 3)
	_, _ = rand.Read(b)
	subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200 + byte(subnets.Add(1))%50, b[0], 1}), 24)
	cfg := Config{
		Socket: filepath.Join(dir, "cri.sock"), Root: filepath.Join(dir, "state", "cri"), Mask: filepath.Join(dir, "state"),
		Bridge: "t9t" + hex.EncodeToString(b), Subnet: subnet,
	}
	t.Cleanup(func() {
		if err := Cleanup(context.WithoutCancel(t.Context()), cfg); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return cfg
}

func start(t testing.TB) *node {
	t.Helper()
	return serve(t, testConfig(t))
}

// serve starts a server in this process. The server stops at the end of the test at the latest.
func serve(t testing.TB, cfg Config) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := Serve(ctx, cfg); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	n := dial(t, cfg)
	n.stop = cancel
	return n
}

func dial(t testing.TB, cfg Config) *node {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &node{
		RuntimeServiceClient: pb.NewRuntimeServiceClient(conn), images: pb.NewImageServiceClient(conn),
		t: t, cfg: cfg, logs: filepath.Join(filepath.Dir(cfg.Socket), "logs"),
	}
}

func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	n.t.Cleanup(cancel)
	return ctx
}

// sandbox runs a sandbox, and returns its ID and configuration. The given functions change the configuration first.
func (n *node) sandbox(name string, change ...func(*pb.PodSandboxConfig)) (string, *pb.PodSandboxConfig) {
	n.t.Helper()
	config := sandboxConfig(n, name)
	for _, f := range change {
		f(config)
	}
	r, err := n.RunPodSandbox(n.ctx(), &pb.RunPodSandboxRequest{Config: config})
	if err != nil {
		n.t.Fatalf("RunPodSandbox: %v", err)
	}
	return r.PodSandboxId, config
}

func sandboxConfig(n *node, name string) *pb.PodSandboxConfig {
	return &pb.PodSandboxConfig{
		Metadata: &pb.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Hostname: name,
		LogDirectory: filepath.Join(n.logs, name), Labels: map[string]string{"pod": name},
		DnsConfig: &pb.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"default.svc.cluster.local"}, Options: []string{"ndots:5"}},
		Linux: &pb.LinuxPodSandboxConfig{SecurityContext: &pb.LinuxSandboxSecurityContext{
			NamespaceOptions: &pb.NamespaceOption{Pid: pb.NamespaceMode_CONTAINER}}},
	}
}

// script returns the configuration of a container that runs a shell script.
func script(name, text string) *pb.ContainerConfig {
	return &pb.ContainerConfig{
		Metadata: &pb.ContainerMetadata{Name: name}, Image: &pb.ImageSpec{Image: "example.com/" + name + ":v1"},
		Command: []string{"/bin/sh", "-c", text}, LogPath: name + ".log", Labels: map[string]string{"container": name},
		Linux: &pb.LinuxContainerConfig{SecurityContext: &pb.LinuxContainerSecurityContext{
			NamespaceOptions: &pb.NamespaceOption{Pid: pb.NamespaceMode_CONTAINER}}},
	}
}

func (n *node) create(sandbox string, config *pb.ContainerConfig) string {
	n.t.Helper()
	r, err := n.CreateContainer(n.ctx(), &pb.CreateContainerRequest{PodSandboxId: sandbox, Config: config})
	if err != nil {
		n.t.Fatalf("CreateContainer: %v", err)
	}
	return r.ContainerId
}

func (n *node) run(sandbox string, config *pb.ContainerConfig) string {
	n.t.Helper()
	id := n.create(sandbox, config)
	n.startAgain(id)
	return id
}

func (n *node) status(id string) *pb.ContainerStatus {
	n.t.Helper()
	r, err := n.ContainerStatus(n.ctx(), &pb.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		n.t.Fatalf("ContainerStatus: %v", err)
	}
	return r.Status
}

// wantExit waits for a container's end and checks its exit code and log.
func (n *node) wantExit(id string, code int32, log string) {
	n.t.Helper()
	st := n.exited(id)
	if got := n.log(id); st.ExitCode != code || got != log {
		n.t.Errorf("container %s ended with code %d and log %q, want %d and %q", st.Metadata.Name, st.ExitCode, got, code, log)
	}
}

// wantLog waits until the whole log of a container is text.
func (n *node) wantLog(id, text string) {
	n.t.Helper()
	await.That(n.t, "the container prints "+text, func() bool { return n.log(id) == text })
}

// sandboxStatus returns the status of a sandbox that exists.
func (n *node) sandboxStatus(id string) *pb.PodSandboxStatus {
	n.t.Helper()
	r, err := n.PodSandboxStatus(n.ctx(), &pb.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		n.t.Fatal(err)
	}
	return r.Status
}

func (n *node) removeSandbox(id string) {
	n.t.Helper()
	if _, err := n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		n.t.Errorf("removing a sandbox: %v", err)
	}
}

// startAgain starts an existing container.
func (n *node) startAgain(id string) {
	n.t.Helper()
	if _, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: id}); err != nil {
		n.t.Fatalf("StartContainer: %v", err)
	}
}

// exited waits until a container has ended and returns its status.
func (n *node) exited(id string) *pb.ContainerStatus {
	n.t.Helper()
	var st *pb.ContainerStatus
	await.That(n.t, "the container ends", func() bool {
		st = n.status(id)
		return st.State == pb.ContainerState_CONTAINER_EXITED
	})
	return st
}

// output runs a container to its end in a sandbox and returns its log. The exit code must be 0.
func (n *node) output(sandbox string, config *pb.ContainerConfig) string {
	n.t.Helper()
	id := n.run(sandbox, config)
	st := n.exited(id)
	out := n.log(id)
	if st.ExitCode != 0 {
		n.t.Fatalf("container %s: exit code %d, %s\n%s", config.Metadata.Name, st.ExitCode, st.Message, out)
	}
	return out
}

// log returns the text of a container's log.
func (n *node) log(id string) string {
	n.t.Helper()
	return logText(n.t, n.status(id).LogPath)
}

func logText(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(line, " ", 4)
		if len(f) != 4 {
			t.Fatalf("log line %q", line)
		}
		if _, err := time.Parse(time.RFC3339Nano, f[0]); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if f[2] == "P" {
			f[3] = strings.TrimSuffix(f[3], "\n")
		}
		out.WriteString(f[3])
	}
	return out.String()
}

// sync runs a command in a container, and returns its output and exit code.
func (n *node) sync(id string, argv ...string) (string, int32) {
	n.t.Helper()
	r, err := n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: id, Cmd: argv})
	if err != nil {
		n.t.Fatalf("ExecSync %v: %v", argv, err)
	}
	return string(r.Stdout) + string(r.Stderr), r.ExitCode
}

// leftovers returns the mounts, processes and devices of a configuration that remain on the machine.
func leftovers(t testing.TB, cfg Config) (out []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, cfg.Root) {
			out = append(out, "mount "+line)
		}
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := entryNames(cfg.sandboxes())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name() == cfg.Bridge {
			out = append(out, "bridge "+l.Name())
		}
		for _, id := range ids {
			if l.Name() == vethName(id) {
				out = append(out, "veth "+l.Name())
			}
		}
	}
	return append(out, processesOf(t, cfg)...)
}

// processesOf returns the processes that the test marked with the configuration's bridge.
func processesOf(t testing.TB, cfg Config) (out []string) {
	t.Helper()
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pids {
		if cmd, err := os.ReadFile(p + "/environ"); err == nil && strings.Contains(string(cmd), "T9K_TEST="+cfg.Bridge) {
			out = append(out, fmt.Sprintf("process %s", p))
		}
	}
	return out
}
