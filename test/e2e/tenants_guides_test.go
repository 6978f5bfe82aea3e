package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/gate"
)

// tenant is a user with the role edit in a namespace and the right to read queues.
type tenant struct {
	*space
	client     client.Client
	kubeconfig string
	// user is the name by which the API server knows the tenant.
	user string
}

// tenant returns a tenant of the space's namespace. The tenant is a ServiceAccount with a token, which has the same
// rights as a user of an identity provider would have.
func (s *space) tenant() *tenant {
	s.Helper()
	const name = "alice"
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	request, err := s.Core.CoreV1().ServiceAccounts(s.Namespace).CreateToken(s.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.Must(err)
	t := &tenant{space: s, user: "system:serviceaccount:" + s.Namespace + ":" + name, kubeconfig: filepath.Join(s.TempDir(), "kubeconfig")}
	s.bind(t.user, "edit", false)
	s.bind(t.user, "t9k-queue-viewer", true)
	config, err := clientcmd.LoadFromFile(s.Env.Kubeconfig)
	s.Must(err)
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	s.Must(clientcmd.WriteToFile(*config, t.kubeconfig))
	own, err := clientcmd.BuildConfigFromFlags("", t.kubeconfig)
	s.Must(err)
	t.client, err = client.New(own, client.Options{Scheme: s.Client.Scheme()})
	s.Must(err)
	s.awaitRights("the rights are in force", func() bool {
		return s.can(t.user, s.Namespace, "create", "batch.tensorstack.dev", "genericjobs") && s.can(t.user, s.Namespace, "get", "", "pods/log") &&
			s.can(t.user, "", "list", "scheduler.tensorstack.dev", "queues")
	})
	return t
}

// t9k runs a t9k command as the tenant and returns its output and exit code.
func (t *tenant) t9k(args ...string) (out, errOut string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code = t.t9kWith(ctx, t.kubeconfig, &stdout, &stderr, args...)
	return stdout.String(), stderr.String(), code
}

// leftOut is the note of `t9k top` about nodes, which belong to no namespace.
const leftOut = "Not shown: nodes is forbidden"

// does runs a t9k command as the tenant, which must succeed and must report nothing as forbidden except leftOut. It
// returns the standard output followed by the standard error.
func (t *tenant) does(args ...string) string {
	t.Helper()
	out, errOut, code := t.t9k(args...)
	if code != 0 || strings.Contains(strings.ReplaceAll(out+errOut, leftOut, ""), "forbidden") {
		t.Fatalf("t9k %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out + errOut
}

// shows runs t9k commands, in any order, each of which must print the given text. The keys of texts are the command
// lines.
func (t *tenant) shows(texts map[string]string) {
	t.Helper()
	for line, want := range texts {
		if out := t.does(strings.Fields(line)...); !strings.Contains(out, want) {
			t.Errorf("the output of t9k %s lacks %q:\n%s", line, want, out)
		}
	}
}

// TestTenantWithEditDoesTheGuides verifies that a user with the role edit and the right to read queues can follow the
// guides with t9k. The cluster has a console, which keeps the history.
func TestTenantWithEditDoesTheGuides(t *testing.T) {
	s := lend(t, fragile)
	alice := s.tenant()
	hello := examples + "/hello/job.yaml"
	alice.does("validate", "-f", hello)
	alice.does("run", "-f", hello)
	alice.shows(map[string]string{"get": "hello", "describe hello": "Succeeded", "logs hello": "Hello from replica 1", "queue list": "default"})
	alice.does("run", "-f", hello, "--replace")
	alice.does("rerun", "hello")
	alice.shows(map[string]string{"get hello-2": "Succeeded"})
	alice.runsInAQueue()
	alice.sweeps()
	alice.controls()
	alice.scales()
	alice.trains()
	alice.readsTheHistory()
}

func (t *tenant) runsInAQueue() {
	t.Helper()
	t.does("run", "-f", examples+"/gang/job.yaml")
	gang := t.gang("waiting", "default", requesting(role("w", 2, gate.Obey), "20"))
	t.Must(t.client.Create(t.Context(), gang))
	t.awaitReason("waiting", batch.ReasonImpossible)
	t.shows(map[string]string{
		"describe gang": "Succeeded", "describe waiting": "20 cpu", "queue describe default": "Only namespace " + t.Namespace,
		"top": leftOut, "top queues": "default", "top users": "USER",
	})
	t.does("delete", "waiting")
}

func (t *tenant) sweeps() {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sweep.yaml")
	const manifest = `apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {name: tries}
spec:
  replicaSpecs:
    - {type: w, template: {spec: {containers: [{name: main, image: busybox, command: [sh, -c, "echo rate ${lr}"]}]}}}
`
	t.Must(os.WriteFile(file, []byte(manifest), 0o600))
	t.does("sweep", "-f", file, "--set", "lr=0.1,0.01", "--parallel", "2")
	t.shows(map[string]string{"sweep tries": "0.01", "get -l batch.tensorstack.dev/sweep=tries": "Succeeded"})
}

func (t *tenant) controls() {
	t.Helper()
	t.Must(t.client.Create(t.Context(), t.newJob("work", role("w", 2, gate.Obey))))
	t.awaitPhase("work", batch.JobRunning)
	t.does("exec", "work", "--", "true")
	t.does("pause", "work")
	t.awaitPhase("work", batch.JobPaused)
	t.does("resume", "work")
	t.awaitPhase("work", batch.JobRunning)
	t.does("debug", "on", "work")
	t.does("debug", "off", "work")
	t.does("describe", "work")
	t.does("delete", "work")
}

func (t *tenant) scales() {
	t.Helper()
	t.Must(t.client.Create(t.Context(), t.newElastic("elastic", 1, 2, 1, role("worker", 1, gate.Obey))))
	t.does("scale", "elastic", "2")
	t.awaitStarts("elastic-worker-1", 1)
}

// trains runs the TensorFlow examples, one of which has a TensorBoard.
func (t *tenant) trains() {
	t.Helper()
	requireStandIn(t.T)
	t.claim("logs")
	t.does("run", "-f", examples+"/tensorflow-cluster/job.yaml")
	t.does("run", "-f", examples+"/tensorboard/job.yaml")
	t.awaitBoardReady("tensorboard")
	t.forwardedTo(t.kubeconfig, "tensorboard")
	t.shows(map[string]string{"describe tensorflow-cluster": "Succeeded", "describe tensorboard": "TensorBoard"})
}

func (t *tenant) readsTheHistory() {
	t.Helper()
	t.does("delete", "hello")
	t.Await("the history has the deleted job and its log", func() error {
		for line, want := range map[string]string{"history list": "hello", "history describe hello": "Succeeded", "history logs hello": "Hello from replica 1", "history usage --by namespace -o csv": "from,to,namespace,resource,hours"} {
			out, errOut, code := t.t9k(strings.Fields(line)...)
			if code != 0 || !strings.Contains(out, want) {
				return fmt.Errorf("t9k %s: exit code %d, lacks %q:\n%s%s", line, code, want, out, errOut)
			}
		}
		return nil
	})
}
