package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// checkCommandLine starts a cluster on containerd with t9k local, as docs/local.md describes, runs a job in its
// containers, and verifies that a reset leaves no containers behind.
func (d *containerd) checkCommandLine(t *testing.T) {
	state, err := os.MkdirTemp("", "t9k") //nolint:usetesting // the path of t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	t9k := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(d.tools.t9k, args...)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "HOME="+state, "KUBECONFIG=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("t9k %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	defer func() {
		t9k("local", "reset")
		if left := d.ctr(t, "containers", "list", "--quiet"); left != "" {
			t.Errorf("containers remain:\n%s", left)
		}
	}()
	t9k("local", "up", "--runtime", "containerd", "--containerd-socket", d.socket)
	if t.Failed() {
		return
	}

	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(t9k("local", "kubeconfig")))
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 || !strings.HasPrefix(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion, "containerd://") {
		t.Errorf("nodes: %+v: %v", nodes, err)
	}
	// The file exists on this machine but not in the image.
	const program = `import os; print("accounts:", os.path.exists("/etc/passwd"))`
	out := t9k("run", "--name", "hello", "--image", pythonName, "--replicas", "2", "--", "python3", "-c", program)
	if !strings.Contains(out, "accounts: False\n") {
		t.Errorf("the job printed\n%s", out)
	}
}
