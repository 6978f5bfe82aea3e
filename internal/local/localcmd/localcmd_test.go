package localcmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/await"
)

// user runs commands with its own state directory, so that running clusters are not disturbed.
type user struct {
	binary, state string
	// id is the ID of a user without privileges, or 0 for the user who runs the test.
	id uint32
}

func newUser(t *testing.T) *user {
	t.Helper()
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
	binary, err := testenv.Binary()
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("", "t9k") //nolint:usetesting // the path of t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	u := &user{binary: binary, state: state}
	t.Cleanup(func() {
		for _, name := range u.names() {
			u.t9k(t, "reset", "--name", name)
		}
		os.RemoveAll(state)
	})
	return u
}

func (u *user) dir(name string) local.Dir {
	return local.Dir(filepath.Join(u.state, "t9k/local", name))
}

func (u *user) names() (names []string) {
	entries, _ := os.ReadDir(filepath.Join(u.state, "t9k/local")) // none if no cluster was created
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// try runs a command and returns its output.
func (u *user) try(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, u.binary, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+u.state)
	if u.id != 0 {
		cmd.Dir = "/" // other users may not be able to read the current directory
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.id, Gid: u.id}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// t9k runs a command, checks that it succeeds, and returns its output.
func (u *user) t9k(t *testing.T, args ...string) string {
	t.Helper()
	out, err := u.try(context.Background(), args...) // also called in clean-up functions
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (u *user) config(t *testing.T, name string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.dir(name).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (u *user) client(t *testing.T, name string) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(u.config(t, name))
}

func (u *user) status(t *testing.T, name string) *local.Status {
	t.Helper()
	s, err := local.NewClient(u.dir(name)).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pod returns a pod that runs a shell script.
func pod(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"in": "group"}},
		Spec: corev1.PodSpec{
			Hostname: name, Subdomain: "group", RestartPolicy: corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: "none", Command: []string{"sh", "-c", script}}},
		},
	}
}

func create(t *testing.T, c kubernetes.Interface, p *corev1.Pod) {
	t.Helper()
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func awaitPhase(t *testing.T, c kubernetes.Interface, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	await.Until(t, name+" "+string(phase), func() error {
		var err error
		if p, err = c.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if p.Status.Phase != phase {
			return fmt.Errorf("is %s: %v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return nil
	})
	return p
}

func logsOf(t *testing.T, c kubernetes.Interface, name string) string {
	t.Helper()
	var data []byte
	// A kubelet that has just started may not know its pods yet.
	await.Until(t, "the log of "+name, func() (err error) {
		data, err = c.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		return err
	})
	return string(data)
}

// traces returns the processes, network devices and addresses of a cluster that are still on the machine.
func (u *user) traces(t *testing.T, name string, c *local.Config) []string {
	t.Helper()
	found := processesOf(t, string(u.dir(name)))
	if _, err := net.InterfaceByName(c.Bridge); err == nil {
		found = append(found, "bridge "+c.Bridge)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && (c.Pods.Contains(p.Addr()) || c.Services.Contains(p.Addr())) {
			found = append(found, "address "+a.String())
		}
	}
	return found
}

// processesOf returns the files in /proc that contain dir: command lines, environments and mounts of processes.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		switch filepath.Base(file) {
		case "cmdline", "mountinfo", "environ":
			data, _ := os.ReadFile(file) // the process may have exited or belong to another user
			if strings.Contains(string(data), dir) {
				found = append(found, file)
			}
		}
	}
	return found
}

// machineFiles describes the files of the machine that a kubelet would change.
func machineFiles(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"/var/lib", "/var/log", "/run", "/etc"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			fmt.Fprintln(&b, filepath.Join(dir, e.Name()))
		}
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, name, strings.TrimSpace(string(data)))
	}
	return b.String()
}

func configOf(t *testing.T, d local.Dir) *local.Config {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(d), "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := &local.Config{}
	if err := json.Unmarshal(data, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func pidOf(t *testing.T, s *local.Status, component string) int {
	t.Helper()
	c := s.Component(component)
	if c == nil || c.PID <= 1 {
		t.Fatalf("no process of %s: %+v", component, s)
	}
	return c.PID
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("killing process %s: %v", strconv.Itoa(pid), err)
	}
}

// alive reports whether a process runs. A zombie does not run.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// TestVersion verifies that --version prints our version: Kubernetes' packages define a flag of the same name, which
// the programs must not use.
func TestVersion(t *testing.T) {
	binary, err := testenv.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range [][]string{{"t9k-local"}, {"t9k-operator", "operator"}, {"t9k-scheduler", "kube-scheduler"}} {
		out, err := exec.Command(binary, append(program[1:], "--version")...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), program[0]+" devel (") {
			t.Errorf("%s --version: %v: %s", program[0], err, out)
		}
	}
}
