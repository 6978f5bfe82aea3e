package cri

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"batch.tensorstack.dev/shim"
	"github.com/google/go-cmp/cmp"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"

	"tensorstack.dev/batch/test/kit/await"
)

func TestContainerRunsToItsEnd(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	for _, test := range []struct {
		name, script string
		code         int32
		reason       string
	}{
		{"success", "true", 0, reasonCompleted},
		{"own code", "exit 3", 3, reasonError},
		{"ended by a signal", "kill -TERM $$", 143, reasonError},
		{"killed", "kill -KILL $$", 137, reasonError},
		{"leaves processes behind", "sleep 1000 & exec /bin/false", 1, reasonError},
		{"leaves a daemon behind", "setsid sh -c 'sleep 1000 & sleep 1001' & exit 4", 4, reasonError},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := n.run(sb, script("c", test.script))
			st := n.exited(id)
			if st.ExitCode != test.code || st.Reason != test.reason {
				t.Errorf("exit code %d, reason %s; want %d, %s", st.ExitCode, st.Reason, test.code, test.reason)
			}
			if st.CreatedAt > st.StartedAt || st.StartedAt > st.FinishedAt {
				t.Errorf("times: created %d, started %d, finished %d", st.CreatedAt, st.StartedAt, st.FinishedAt)
			}
			if got, want := st.Image.Image, "example.com/c:v1"; got != want || st.ImageRef != want {
				t.Errorf("image %q, reference %q; want %q", got, st.ImageRef, want)
			}
		})
	}
}

func TestFirstProcessStartsBeforeKubernetes(t *testing.T) {
	cmd := exec.Command(self)
	cmd.Args[0], cmd.Env, cmd.Dir = shim.Name, []string{"GODEBUG=inittrace=1"}, t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != shim.StartFailed {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "init runtime @") || strings.Contains(string(out), "k8s.io/") {
		t.Errorf("packages that were initialised before the shim:\n%s", out)
	}
}

func TestLogHasEveryByte(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	c := script("c", `echo out; echo err >&2; printf 'no end'; printf '\n\n'; head -c 40000 /dev/zero | tr '\0' x; echo; seq 20000; printf tail`)
	got := n.output(sb, c)
	var want strings.Builder
	want.WriteString("no end\n\n" + strings.Repeat("x", 40000) + "\n")
	for i := range 20000 {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString("tail")
	// The order of the two streams is undefined.
	if strings.Replace(got, "err\n", "", 1) != "out\n"+want.String() {
		t.Errorf("%d bytes of output, want %d", len(got), want.Len()+len("out\nerr\n"))
	}
	b, err := os.ReadFile(filepath.Join(n.logs, "a", "c.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{" stdout F out\n", " stderr F err\n", " stdout P " + strings.Repeat("x", 1<<14) + "\n", " stdout P tail\n"} {
		if !strings.Contains(string(b), s) {
			t.Errorf("the log has no record %.40q", s)
		}
	}
}

func TestStop(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	for _, test := range []struct {
		name, script string
		signal       pb.Signal
		grace        int64
		code         int32
		log          string
	}{
		{"ends on the signal", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done", 0, 30, 5, "up\nbye\n"},
		{"has no handler", "echo up; exec sleep 1000", 0, 30, 143, "up\n"},
		{"other signal", "trap 'echo usr1; exit 6' USR1; echo up; while :; do sleep 0.01; done", pb.Signal_SIGUSR1, 30, 6, "up\nusr1\n"},
		{"does not listen", "trap 'echo no' TERM; echo up; while :; do sleep 0.01; done", 0, 1, 137, "up\nno\n"},
		{"without grace", "trap 'echo no' TERM; echo up; while :; do sleep 0.01; done", 0, 0, 137, "up\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := script("c", test.script)
			c.LogPath, c.StopSignal = strings.ReplaceAll(test.name, " ", "-")+".log", test.signal
			id := n.run(sb, c)
			await.That(t, "the script runs", func() bool { return n.log(id) == "up\n" })
			begun := time.Now()
			if _, err := n.StopContainer(n.ctx(), &pb.StopContainerRequest{ContainerId: id, Timeout: test.grace}); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			if st := n.status(id); st.State != pb.ContainerState_CONTAINER_EXITED || st.ExitCode != test.code {
				t.Errorf("state %s, exit code %d; want %d", st.State, st.ExitCode, test.code)
			}
			if got := n.log(id); got != test.log {
				t.Errorf("log %q, want %q", got, test.log)
			}
			if patient := test.grace == 1; patient && took < time.Second || took > 50*time.Second {
				t.Errorf("took %s with a grace of %d s", took, test.grace)
			}
		})
	}
}

func TestProcessesSeeOnlyTheirContainer(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("alpha")
	c := script("c", `echo pid1=$(cat /proc/1/comm); ls -d /proc/[0-9]* | wc -l; hostname; cat /etc/hostname /etc/resolv.conf
		echo $PATH; echo $HOME $HOSTNAME $A $B; pwd; grep -E 'SigIgn|SigBlk' /proc/self/status; umask`)
	c.WorkingDir = "/does/not/exist"
	c.Envs = []*pb.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "B", Value: []byte("x=y z")}, {Key: "A", Value: []byte("2")}}
	got := strings.Split(strings.TrimSpace(n.output(sb, c)), "\n")
	want := []string{
		"pid1=t9k-shim", got[1], "alpha", "alpha", "nameserver 192.0.2.53", "search default.svc.cluster.local", "options ndots:5",
		os.Getenv("PATH"), "/root alpha 2 x=y z", "/does/not/exist", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "0022",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got[1]) > 1 {
		t.Errorf("%s processes are visible, want a handful", got[1])
	}
	if exists("/does") {
		t.Error("the working directory was created on the host")
	}
}

func TestUsersAndRights(t *testing.T) {
	n := start(t)
	sb, _ := n.sandbox("a")
	const show = `id -u > /dev/stdout; id -g; id -G; grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status | cut -f2`
	const standard, none = "00000000a80425fb", "0000000000000000"
	every, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(every), "CapBnd:\t")
	full, _, _ := strings.Cut(rest, "\n")
	for _, test := range []struct {
		name string
		sc   *pb.LinuxContainerSecurityContext
		want []string // user, group, groups, effective, bounding, no_new_privs
	}{
		{"default", &pb.LinuxContainerSecurityContext{}, []string{"0", "0", "0", standard, standard, "0"}},
		{"privileged", &pb.LinuxContainerSecurityContext{Privileged: true}, []string{"0", "0", "0", full, full, "0"}},
		{
			"user and groups",
			&pb.LinuxContainerSecurityContext{
				RunAsUser: &pb.Int64Value{Value: 4321}, RunAsGroup: &pb.Int64Value{Value: 8765}, SupplementalGroups: []int64{2000}, NoNewPrivs: true,
			},
			[]string{"4321", "8765", "8765 2000", none, standard, "1"},
		},
		{"user of no name", &pb.LinuxContainerSecurityContext{RunAsUser: &pb.Int64Value{Value: 4321}}, []string{"4321", "0", "0", none, standard, "0"}},
		{
			"no capabilities but one",
			&pb.LinuxContainerSecurityContext{Capabilities: &pb.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}}},
			[]string{"0", "0", "0", "0000000000001000", "0000000000001000", "0"},
		},
		{
			"one less",
			&pb.LinuxContainerSecurityContext{Capabilities: &pb.Capability{DropCapabilities: []string{"CAP_NET_RAW"}}},
			[]string{"0", "0", "0", "00000000a80405fb", "00000000a80405fb", "0"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := script("c", show)
			test.sc.NamespaceOptions = c.Linux.SecurityContext.NamespaceOptions
			c.Linux.SecurityContext = test.sc
			c.LogPath = strings.ReplaceAll(test.name, " ", "-")
			got := strings.Split(strings.TrimSpace(n.output(sb, c)), "\n")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			c.Command[2], c.LogPath = "exec sleep 1000", c.LogPath+"2"
			out, _ := n.sync(n.run(sb, c), "sh", "-c", show)
			if diff := cmp.Diff(test.want, strings.Split(strings.TrimSpace(out), "\n")); diff != "" {
				t.Errorf("by exec (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	n := start(t)
	var wg sync.WaitGroup
	var addresses sync.Map
	for i := range 40 {
		wg.Go(func() {
			name := fmt.Sprintf("pod%d", i)
			r, err := n.RunPodSandbox(n.ctx(), &pb.RunPodSandboxRequest{Config: sandboxConfig(n, name)})
			if err != nil {
				t.Error(err)
				return
			}
			if _, twice := addresses.LoadOrStore(n.sandboxStatus(r.PodSandboxId).Network.Ip, name); twice {
				t.Error("two pods have the same address")
			}
			created, err := n.CreateContainer(n.ctx(), &pb.CreateContainerRequest{PodSandboxId: r.PodSandboxId, Config: script("c", "echo $HOSTNAME; exec sleep 1000")})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := n.StartContainer(n.ctx(), &pb.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
				t.Error(err)
			}
			out, err := n.ExecSync(n.ctx(), &pb.ExecSyncRequest{ContainerId: created.ContainerId, Cmd: []string{"hostname"}})
			if err != nil || string(out.Stdout) != name+"\n" {
				t.Errorf("exec in %s: %v, %v", name, out, err)
			}
			n.removeSandbox(r.PodSandboxId)
		})
	}
	wg.Wait()
	if got := leftovers(t, n.cfg); len(got) != 1 {
		t.Errorf("remaining: %q", got)
	}
}

func TestNamespacesCanBeShared(t *testing.T) {
	n := start(t)
	t.Run("shared by the pod", func(t *testing.T) {
		sb, _ := n.sandbox("shared", func(c *pb.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid = pb.NamespaceMode_POD
		})
		share := func(c *pb.ContainerConfig) *pb.ContainerConfig {
			c.Linux.SecurityContext.NamespaceOptions.Pid = pb.NamespaceMode_POD
			return c
		}
		first := n.run(sb, share(script("first", "exec sleep 4242")))
		second := n.run(sb, share(script("second", "setsid sleep 4343 & exec sleep 4444")))
		await.That(t, "each sees the other", func() bool {
			out, _ := n.sync(second, "ps", "-eo", "args")
			return strings.Contains(out, "sleep 4242") && strings.Contains(out, "sleep 4343")
		})
		if _, err := n.StopContainer(n.ctx(), &pb.StopContainerRequest{ContainerId: second, Timeout: 10}); err != nil {
			t.Fatal(err)
		}
		out, _ := n.sync(first, "ps", "-eo", "args")
		if strings.Contains(out, "sleep 4343") || !strings.Contains(out, "sleep 4242") {
			t.Errorf("after the end of the second container:\n%s", out)
		}
	})
	t.Run("of a target", func(t *testing.T) {
		sb, _ := n.sandbox("target")
		target := n.run(sb, script("target", "exec sleep 4545"))
		c := script("debugger", "ps -eo args")
		c.Linux.SecurityContext.NamespaceOptions = &pb.NamespaceOption{Pid: pb.NamespaceMode_TARGET, TargetId: target}
		if out := n.output(sb, c); !strings.Contains(out, "sleep 4545") {
			t.Errorf("the debugger sees\n%s", out)
		}
	})
	t.Run("of the host", func(t *testing.T) {
		host := &pb.NamespaceOption{Network: pb.NamespaceMode_NODE, Pid: pb.NamespaceMode_NODE, Ipc: pb.NamespaceMode_NODE}
		sb, _ := n.sandbox("host", func(c *pb.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions, c.DnsConfig = host, nil
			// For a pod in the host's network, the API server sets the host port to the container port.
			c.PortMappings = []*pb.PortMapping{{ContainerPort: 8080, HostPort: 8080}}
		})
		c := script("c", "sleep 4646 & for k in net uts ipc pid; do readlink /proc/self/ns/$k; done; cat /etc/resolv.conf; exec sleep 4747")
		c.Linux.SecurityContext.NamespaceOptions = host
		id := n.run(sb, c)
		var want strings.Builder
		for _, k := range []string{"net", "uts", "ipc", "pid"} {
			link, err := os.Readlink("/proc/self/ns/" + k)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&want, link)
		}
		resolv, _ := os.ReadFile("/etc/resolv.conf") // a host may have none
		await.That(t, "the container has the host's namespaces", func() bool { return n.log(id) == want.String()+string(resolv) })
		before := n.stats(id)
		if before.GetMemory().GetRssBytes().GetValue() == 0 {
			t.Error("no memory was counted")
		}
		if _, err := n.RemovePodSandbox(n.ctx(), &pb.RemovePodSandboxRequest{PodSandboxId: sb}); err != nil {
			t.Fatal(err)
		}
		for _, p := range hostProcesses(t) {
			if p == "sleep\x004646\x00" || p == "sleep\x004747\x00" {
				t.Errorf("%q still exists", p)
			}
		}
	})
}

func (n *node) stats(id string) *pb.ContainerStats {
	n.t.Helper()
	r, err := n.ContainerStats(n.ctx(), &pb.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		n.t.Fatal(err)
	}
	return r.Stats
}

// hostProcesses returns the command lines of all processes.
func hostProcesses(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			out = append(out, string(b))
		}
	}
	return out
}
