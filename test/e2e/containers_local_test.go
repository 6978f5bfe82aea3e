package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/plane"
)

// checkCommandLine starts a cluster on containerd with t9k local, as docs/local.md describes, runs a job and a
// TensorBoard in its containers, and verifies that a reset leaves no containers behind.
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
	c, err := plane.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes := &corev1.NodeList{}
	if err := c.List(t.Context(), nodes); err != nil || len(nodes.Items) != 1 || !strings.HasPrefix(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion, "containerd://") {
		t.Errorf("nodes: %+v: %v", nodes, err)
	}
	// The file exists on this machine but not in the image.
	const program = `import os; print("accounts:", os.path.exists("/etc/passwd"))`
	out := t9k("run", "--name", "hello", "--image", pythonName, "--replicas", "2", "--", "python3", "-c", program)
	if !strings.Contains(out, "accounts: False\n") {
		t.Errorf("the job printed\n%s", out)
	}
	checkBoard(t, c)
}

// checkBoard verifies that a TensorBoard becomes ready. The proxy in its pod runs in the operator's image.
func checkBoard(t *testing.T, c client.Client) {
	where := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "board"}
	keys := &corev1.Secret{ObjectMeta: where, StringData: map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}}
	board := &tensorboard.TensorBoard{ObjectMeta: where, Spec: tensorboard.TensorBoardSpec{Image: pythonName, LogDir: &tensorboard.LogDir{
		S3: &tensorboard.S3Source{SecretRef: tensorboard.SecretRef{Name: keys.Name}, URI: []string{"s3://bucket/logs"}}}}}
	for _, o := range []client.Object{keys, board} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "the TensorBoard is ready", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(board), board); err != nil {
			return err
		}
		if ready := boardCondition(board, tensorboard.Ready); ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition Ready: %+v", ready)
		}
		return nil
	})
}
