package localcmd_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/await"
)

// TestClusterLifeLeavesTheMachineUnchanged verifies that nothing remains on the machine after the whole life of a
// cluster, which includes restarts on the same data after a stop and after a kill of the machine process. In between,
// it verifies the commands, the pods' network and the archive of the running cluster, and that a start repairs a
// changed CRD and a changed webhook.
func TestClusterLifeLeavesTheMachineUnchanged(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	before := machineFiles(t)
	u.prints(t, "Cluster default is ready.", "up")
	config := configOf(t, u.dir("default"))
	commandsOfRunningCluster(t, u)
	if after := machineFiles(t); after != before {
		t.Errorf("the machine's files changed from\n%s\nto\n%s", before, after)
	}
	podsFindEachOther(t, u, "default")
	historyKeeps(t, u)

	u.spoilCRD(t, "default")
	u.spoilWebhook(t, "default")

	u.prints(t, "Cluster default is down.", "down")
	u.leavesNothing(t, "default", config)
	if out, err := u.try(t.Context(), "status"); err == nil || !strings.Contains(out, "is down") {
		t.Errorf("status of a cluster that is down: %v\n%s", err, out)
	}
	u.prints(t, "was not running", "down")

	u.prints(t, "Cluster default is ready.", "up")
	u.awaitHistory(t, "What is kept", "logs", "kept")
	u.checkCRDRepaired(t, "default")
	u.checkWebhookRepaired(t, "default")
	c := u.client(t, "default")
	awaitPhase(t, c, "asker", corev1.PodSucceeded)
	if got := logsOf(t, c, "asker"); !strings.HasPrefix(got, "server\n") {
		t.Errorf("the log of the ended pod is %q", got)
	}
	checkDisrupted(t, awaitPhase(t, c, "server", corev1.PodFailed), "TerminationByKubelet")
	u.checkKilledMachine(t, config)
	u.prints(t, "Cluster default and its data are deleted.", "reset")
	if _, err := os.Stat(string(u.dir("default"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after reset: %v", err)
	}
	u.leavesNothing(t, "default", config)
	if after := machineFiles(t); after != before {
		t.Errorf("the machine's files changed from\n%s\nto\n%s", before, after)
	}
}

// checkDisrupted verifies that the pod has the condition DisruptionTarget with the reason.
func checkDisrupted(t *testing.T, p *corev1.Pod, reason string) {
	t.Helper()
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == reason {
			return
		}
	}
	t.Errorf("pod %s has ended without a DisruptionTarget for %s: %+v", p.Name, reason, p.Status)
}

const queues = "queues.scheduler.tensorstack.dev"

func (u *user) crds(t *testing.T, name string) crdclient.CustomResourceDefinitionInterface {
	t.Helper()
	return crdclient.NewForConfigOrDie(u.config(t, name)).CustomResourceDefinitions()
}

// spoilCRD changes a CRD so that it differs from this program's version.
func (u *user) spoilCRD(t *testing.T, name string) {
	t.Helper()
	wrong := []byte(`{"spec":{"names":{"shortNames":["wrong"]}}}`)
	if _, err := u.crds(t, name).Patch(t.Context(), queues, types.MergePatchType, wrong, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (u *user) checkCRDRepaired(t *testing.T, name string) {
	t.Helper()
	mended, err := u.crds(t, name).Get(t.Context(), queues, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := mended.Spec.Names.ShortNames; !slices.Equal(got, []string{"q"}) {
		t.Errorf("after a start the short names of queues are %q", got)
	}
}

// spoilWebhook makes the API server call the Service of an operator in the cluster, as config/default does.
func (u *user) spoilWebhook(t *testing.T, name string) {
	t.Helper()
	hooks := u.client(t, name).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the operator also writes the configuration
		c, err := hooks.Get(t.Context(), "t9k-batch", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "t9k-system", Name: "t9k-webhook"}}
		}
		_, err = hooks.Update(t.Context(), c, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (u *user) checkWebhookRepaired(t *testing.T, name string) {
	t.Helper()
	c, err := u.client(t, name).AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "t9k-batch", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range c.Webhooks {
		if h.ClientConfig.URL == nil || h.ClientConfig.Service != nil {
			t.Errorf("after a start the webhook %s calls %+v", h.Name, h.ClientConfig)
		}
	}
}

// checkConsole verifies that an address of the console works in the first browser that opens it, and not in the second.
func checkConsole(t *testing.T, address string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		browser *http.Client
		want    int
	}{{&http.Client{Jar: jar}, http.StatusOK}, {&http.Client{}, http.StatusUnauthorized}} {
		answer, err := c.browser.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("the console answers %s, want %d", answer.Status, c.want)
		}
	}
}

func commandsOfRunningCluster(t *testing.T, u *user) {
	t.Helper()
	u.prints(t, "is already running", "up")
	if out, err := u.try(t.Context(), "up", "--fsync"); err == nil || !strings.Contains(out, "runs with other options") {
		t.Errorf("up with other options: %v\n%s", err, out)
	}
	if out := u.prints(t, "Cluster default is ready.", "status"); strings.Count(out, " Ready ") != len(local.AllComponents()) {
		t.Errorf("status printed\n%s", out)
	}
	checkConsole(t, strings.TrimSpace(u.t9k(t, "console")))
	if out := u.t9k(t, "kubeconfig"); out != u.dir("default").Kubeconfig()+"\n" {
		t.Errorf("kubeconfig printed %q", out)
	}
	if out := u.t9k(t, "logs", "kube-apiserver", "--tail", "3"); strings.Count(out, "\n") != 3 {
		t.Errorf("the last 3 lines of a log are\n%s", out)
	}
}

// prints runs a command and verifies that it succeeds and that its output contains the text.
func (u *user) prints(t *testing.T, text string, args ...string) string {
	t.Helper()
	out := u.t9k(t, args...)
	if !strings.Contains(out, text) {
		t.Errorf("%s printed\n%s", strings.Join(args, " "), out)
	}
	return out
}

func (u *user) leavesNothing(t *testing.T, name string, c *local.Config) {
	t.Helper()
	if found := u.traces(t, name, c); len(found) > 0 {
		t.Errorf("remaining on the machine: %s", strings.Join(found, ", "))
	}
}

// podsFindEachOther verifies with two pods, server and asker, that a pod reaches another pod by that pod's own name and
// by the name of a Service, and reaches the API server. When it returns, asker has terminated and server still runs.
func podsFindEachOther(t *testing.T, u *user, name string) {
	t.Helper()
	c := u.client(t, name)
	port := []corev1.ServicePort{{Name: "web", Port: 8080}}
	selector := map[string]string{"in": "group"}
	for _, s := range []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "group"}, Spec: corev1.ServiceSpec{ClusterIP: "None", PublishNotReadyAddresses: true, Selector: selector, Ports: port}},
		{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Selector: selector, Ports: port}},
	} {
		if _, err := c.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, c, pod("server", "cd /etc && exec python3 -m http.server 8080"))
	create(t, c, pod("asker", `
		until curl -sf http://server.group:8080/hostname; do sleep 0.1; done
		until curl -sf http://front:8080/hostname; do sleep 0.1; done
		getent hosts server.group.default.svc.cluster.local | awk '{print $2}'
		T=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)
		curl -sf --cacert /var/run/secrets/kubernetes.io/serviceaccount/ca.crt -H "Authorization: Bearer $T" https://kubernetes.default/readyz`))
	awaitPhase(t, c, "asker", corev1.PodSucceeded)
	if got, want := logsOf(t, c, "asker"), "server\nserver\nserver.group.default.svc.cluster.local\nok"; got != want {
		t.Errorf("the pod found %q, want %q", got, want)
	}
}

// checkKilledMachine kills the machine process. It verifies that down removes what remains of the cluster, and that up,
// with or without a down before it, starts on the same data, fails the pod that ran with the reason NodeLost, and runs
// new pods.
func (u *user) checkKilledMachine(t *testing.T, config *local.Config) {
	t.Helper()
	for _, viaDown := range []bool{true, false} {
		c := u.client(t, "default")
		name := fmt.Sprintf("runs-%v", viaDown)
		create(t, c, pod(name, "sleep 1000000"))
		awaitPhase(t, c, name, corev1.PodRunning)
		s := u.status(t, "default")
		kill(t, s.PID)
		await.Until(t, "the end of the components", func() error {
			for _, component := range s.Components {
				if component.PID != 0 && alive(component.PID) {
					return fmt.Errorf("%s is alive", component.Name)
				}
			}
			return nil
		})
		if viaDown {
			if len(u.traces(t, "default", config)) == 0 {
				t.Error("no process of the pod remains before down, so the test proves nothing")
			}
			u.t9k(t, "down")
			u.leavesNothing(t, "default", config)
		}
		u.t9k(t, "up")
		checkDisrupted(t, awaitPhase(t, u.client(t, "default"), name, corev1.PodFailed), "NodeLost")
		create(t, u.client(t, "default"), pod("again-"+name, "true"))
		awaitPhase(t, u.client(t, "default"), "again-"+name, corev1.PodSucceeded)
	}
}

// TestTwoClustersAreSeparate verifies that two clusters have different networks and can run pods of the same names, and
// that one continues when the other is deleted. The second cluster is without TensorStack Batch: it runs pods with the
// plain kube-scheduler, and contains no CRDs with which an installation would conflict.
func TestTwoClustersAreSeparate(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.t9k(t, "up", "--name", "one")
	u.prints(t, "Cluster two is ready.", "up", "--name", "two", "--bare")
	u.prints(t, "Cluster two is already running.", "up", "--name", "two")
	podsFindEachOther(t, u, "one")
	podsFindEachOther(t, u, "two")
	one, two := configOf(t, u.dir("one")), configOf(t, u.dir("two"))
	if one.Pods.Overlaps(two.Pods) || one.Services.Overlaps(two.Services) || one.Bridge == two.Bridge {
		t.Errorf("the clusters share %v and %v", one, two)
	}
	if out := u.t9k(t, "list"); strings.Count(out, " Ready ") != 2 {
		t.Errorf("list printed\n%s", out)
	}
	if out := u.t9k(t, "status", "--name", "two"); strings.Contains(out, "operator") {
		t.Errorf("status printed\n%s", out)
	}
	crds, err := u.crds(t, "two").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(crds.Items) > 0 {
		t.Errorf("%d CRDs: %v", len(crds.Items), err)
	}
	u.t9k(t, "reset", "--name", "one")
	u.leavesNothing(t, "one", one)
	c := u.client(t, "two")
	create(t, c, pod("still", "true"))
	awaitPhase(t, c, "still", corev1.PodSucceeded)
}

func TestWrongCommandLinesAreRefused(t *testing.T) {
	u := newUser(t)
	for args, want := range map[string]string{
		"up --runtime docker": `invalid argument "docker" for "--runtime" flag: use "process" or "containerd"`,
		"up --name Default":   `"Default" cannot be a cluster's name`,
		"up now":              `unknown command "now" for "t9k local up"`,
		"up --sync":           "unknown flag: --sync",
		"start":               `unknown command "start" for "t9k local"`,
		"status":              "there is no cluster default; `t9k local up` creates it",
		"status --name x":     "there is no cluster x; `t9k local up --name x` creates it",
		"kubeconfig":          "there is no cluster default",
		"down --grace -1s":    "--grace -1s is negative: use a time such as 30s",
		"logs":                "name one of etcd, kube-apiserver",
		"logs coredns":        "name one of etcd, kube-apiserver",
		"logs etcd":           "there is no cluster default",
	} {
		out, err := u.try(t.Context(), strings.Fields(args)...)
		if err == nil || !strings.HasPrefix(out, "t9k local: "+want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	if names := u.names(); len(names) > 0 {
		t.Errorf("a refused command created %v", names)
	}
	for args, want := range map[string]string{"down": "There is no cluster default.\n", "reset": "There is no cluster default.\n", "list": "There is no cluster"} {
		if out := u.t9k(t, args); !strings.HasPrefix(out, want) {
			t.Errorf("%s printed %q", args, out)
		}
	}
}
