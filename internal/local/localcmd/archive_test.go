package localcmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/cli"
	"tensorstack.dev/batch/test/kit/await"
)

// history calls t9k history with the kubeconfig of a cluster as the only source of the archive's address.
func (u *user) history(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	args = append([]string{"t9k", "history", "--kubeconfig", u.dir("default").Kubeconfig()}, args...)
	if code := cli.Main(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}); code != 0 {
		return "", fmt.Errorf("%s: exit code %d: %s", args, code, out.String())
	}
	return out.String(), nil
}

// awaitHistory waits until t9k history prints a text.
func (u *user) awaitHistory(t *testing.T, text string, args ...string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("history %q prints %q", args, text), func() error {
		out, err := u.history(t, args...)
		if err == nil && !strings.Contains(out, text) {
			err = errors.New(out)
		}
		return err
	})
}

// ended is a job that succeeds immediately.
const ended = `{"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": {"name": "kept"}, "spec": {"replicaSpecs": [{"type": "w", "replicas": 1,
	"restartPolicy": {"policy": "Never"}, "template": {"spec": {"containers": [{"name": "main", "image": "none", "command": ["echo", "What is kept"]}]}}}]}}`

// restarted is the format of a job, with a number in its name, whose only replica fails, restarts at once, and fails
// again.
const restarted = `{"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": {"name": "again-%d"}, "spec": {"replicaSpecs": [{"type": "w", "replicas": 1,
	"restartPolicy": {"policy": "OnFailure", "limit": 1}, "template": {"spec": {"containers": [{"name": "main", "image": "none", "command": ["sh", "-c", "echo What failed; exit 1"]}]}}}]}}`

// historyKeeps verifies that t9k history shows jobs and the logs of all their attempts, still shows a job after its
// deletion, and shows jobs only to users who may get them.
func historyKeeps(t *testing.T, u *user) {
	t.Helper()
	jobs := u.client(t, "default").Discovery().RESTClient()
	const path = "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/genericjobs"
	await.Until(t, "the job is created", func() error { // the webhook may not answer yet
		return jobs.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(ended)).Do(t.Context()).Error()
	})
	u.awaitHistory(t, "Succeeded", "list")
	u.awaitHistory(t, "What is kept", "logs", "kept")
	if err := jobs.Delete().AbsPath(path + "/kept").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	// The archive must read the log of a replica before the next attempt replaces the pod, even if several replicas end
	// at once.
	for i := range 5 {
		if err := jobs.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(fmt.Appendf(nil, restarted, i)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		job := fmt.Sprintf("again-%d", i)
		u.awaitHistory(t, "FailureRuleMet", "describe", job)
		u.awaitHistory(t, "[w-0#2] What failed", "logs", job)
		if out, err := u.history(t, "logs", job); err != nil || strings.Count(out, "What failed") != 2 {
			t.Errorf("%v; the logs of %s, which was restarted:\n%s", err, job, out)
		}
	}
	u.awaitHistory(t, "kept", "list", "--gone")
	u.awaitHistory(t, "Gone:", "describe", "kept")
	u.archiveKnowsUsers(t)
}

// archiveKnowsUsers verifies that the archive shows no jobs to users who may not get them, and refuses unauthenticated
// clients.
func (u *user) archiveKnowsUsers(t *testing.T) {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(u.dir("default").Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cluster := kubeconfig.Clusters[kubeconfig.Contexts[kubeconfig.CurrentContext].Cluster]
	var address archive.Address
	if err := json.Unmarshal(cluster.Extensions[archive.KubeconfigExtension].(*runtime.Unknown).Raw, &address); err != nil {
		t.Fatal(err)
	}
	admin := u.config(t, "default")
	scheduler, err := clientcmd.BuildConfigFromFlags("", string(u.dir("default"))+"/pki/kube-scheduler.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	token, err := u.client(t, "default").CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	authority := rest.TLSClientConfig{CAData: address.Authority}
	for name, c := range map[string]struct {
		config *rest.Config
		code   int
		text   string
	}{
		"the administrator":                 {admin, 200, `"name":"kept"`},
		"a certificate without the right":   {scheduler, 200, `{"jobs":[],"more":false}`},
		"a token without the right":         {&rest.Config{TLSClientConfig: authority, BearerToken: token.Status.Token}, 200, `{"jobs":[],"more":false}`},
		"a token that nobody knows":         {&rest.Config{TLSClientConfig: authority, BearerToken: "guess"}, 401, "does not accept the credentials"},
		"neither a certificate nor a token": {&rest.Config{TLSClientConfig: authority}, 401, "neither a client certificate nor a bearer token"},
	} {
		client, err := rest.HTTPClientFor(c.config)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(address.Server + "/api/v1/history/jobs")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.text) {
			t.Errorf("%s: %s, %v: %s", name, answer.Status, err, body)
		}
	}
	if _, err := http.Get(address.Server); err == nil {
		t.Error("the archive has a certificate that this machine trusts")
	}
}
