package integration

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
)

const boardCRD = "tensorboards.tensorstack.dev"

// TestMissingRightStopsOnlyItsController verifies that a missing right delays only the controller that needs it, that
// the operator reports it, and that the controller starts without a restart of the operator once the right is granted.
func TestMissingRightStopsOnlyItsController(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "t9k-operator"}}
	var whole []rbacv1.PolicyRule
	w.Update(role, func() {
		whole = slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, tensorboard.GroupVersion.Group) })
	})
	right := authorization.ResourceAttributes{Verb: "watch", Group: tensorboard.GroupVersion.Group, Resource: "tensorboards"}
	w.awaitRight(false, right)
	w.checkStart(w.serviceAccountKubeconfig("t9k-operator"), "may not list and watch "+boardCRD, func() {
		w.Update(role, func() { role.Rules = whole })
	})
}

// TestJobsRunWithoutRightToQueues verifies that the webhook of jobs is served and that jobs without a queue run if
// the operator has no right to queues.
func TestJobsRunWithoutRightToQueues(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	w.revoke("queues")
	w.awaitRight(false, authorization.ResourceAttributes{Verb: "watch", Group: scheduling.GroupVersion.Group, Resource: "queues"})
	address := freeAddress(t)
	w.pointWebhook(address)
	startOperator(t, w.serviceAccountKubeconfig("t9k-operator"), "webhook: {bindAddress: '"+address+"'}")
	w.awaitWebhook()
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Exit, "0")))
	w.awaitPhase("job", batch.JobSucceeded)
}

// TestMissingCRDStopsOnlyItsController verifies the same as TestMissingRightStopsOnlyItsController for a missing CRD.
func TestMissingCRDStopsOnlyItsController(t *testing.T) {
	w := newWorld(t)
	crd := &apiextensions.CustomResourceDefinition{}
	w.Must(w.Client.Get(t.Context(), types.NamespacedName{Name: boardCRD}, crd))
	w.Must(w.Client.Delete(t.Context(), crd.DeepCopy()))
	w.Await("the CRD no longer exists", func() error {
		return namespace.Gone(w.Client.Get(t.Context(), types.NamespacedName{Name: boardCRD}, &apiextensions.CustomResourceDefinition{}))
	})
	crd.ObjectMeta, crd.Status = metav1.ObjectMeta{Name: crd.Name, Annotations: crd.Annotations, Labels: crd.Labels}, apiextensions.CustomResourceDefinitionStatus{}
	w.checkStart(w.Env.Kubeconfig, "apply its CRD", func() { w.Must(w.Client.Create(t.Context(), crd)) })
}

// checkWaitForCRDs starts an operator before the CRDs exist, and verifies that it is healthy while it waits for them,
// so that kubelets do not restart it, and that it becomes ready without a restart, as every installation by Helm
// requires.
func (w *world) checkWaitForCRDs() {
	w.Helper()
	health := freeAddress(w.T)
	operator := startOperator(w.T, w.Env.Kubeconfig, "health: {bindAddress: '"+health+"'}")
	w.Await("the operator says what it waits for", func() error {
		if text := operator.Log.String(); !strings.Contains(text, "waits for the CRDs") || !operator.Running() {
			return fmt.Errorf("it runs: %t; its log: %s", operator.Running(), text)
		}
		return nil
	})
	if code, text, err := fetch("http://" + health + "/healthz"); err != nil || code != http.StatusOK {
		w.Errorf("/healthz answers %d %q, error %v", code, text, err)
	}
	if code, text, err := fetch("http://" + health + "/readyz"); err != nil || code == http.StatusOK || !strings.Contains(text, "[-]crds failed") ||
		!strings.Contains(text, batch.GroupVersion.Group) {
		w.Errorf("/readyz answers %d %q, error %v; want a response that names the missing CRDs", code, text, err)
	}
	w.kubectlApply("../../config/crd")
	w.Await("the operator is ready", func() error {
		code, text, err := fetch("http://" + health + "/readyz?verbose")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
	if !operator.Running() {
		w.Error("the operator has ended")
	}
}

// checkStart starts an operator that lacks a prerequisite of TensorBoards, and verifies that jobs run and that the
// operator reports the problem. It then calls mend, which adds the prerequisite, and verifies that the operator
// becomes ready and handles TensorBoards without a restart.
func (w *world) checkStart(kubeconfig, problem string, mend func()) {
	w.Helper()
	health, metrics := freeAddress(w.T), freeAddress(w.T)
	operator := startOperator(w.T, kubeconfig, "health: {bindAddress: '"+health+"'}", "metrics: {bindAddress: '"+metrics+"'}")
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Exit, "0")))
	w.awaitPhase("job", batch.JobSucceeded)
	readiness := func() (int, string, error) { return fetch("http://" + health + "/readyz?verbose") }
	w.Await("the operator reports that the controller of TensorBoards waits", func() error {
		code, text, err := readiness()
		if err == nil && (code == http.StatusOK || !strings.Contains(text, "[-]tensorboards failed") || !strings.Contains(text, "[+]genericjobs ok")) {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
	w.Await("the log says so", func() error {
		if !strings.Contains(operator.Log.String(), problem) {
			return fmt.Errorf("it does not say %q", problem)
		}
		return nil
	})
	token := w.metricsToken("reader", "t9k-metrics-reader")
	w.Await("the metric reports it", func() error {
		code, text, err := fetchMetrics(metrics, token)
		if err == nil && !strings.Contains(text, `t9k_controller_waiting{controller="tensorboards",resource="TensorBoard.tensorstack.dev"} 1`) {
			err = fmt.Errorf("%d without it", code)
		}
		return err
	})
	mend()
	w.Await("the operator is ready", func() error {
		code, text, err := readiness()
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
	if !operator.Running() {
		w.Error("the operator has ended")
	}
	tb := newBoard("board")
	w.Create(tb)
	w.Await("the TensorBoard has conditions", func() error {
		if err := w.Get("board", tb); err != nil {
			return err
		}
		if len(tb.Status.Conditions) == 0 {
			return fmt.Errorf("it has no conditions")
		}
		return nil
	})
}

func fetch(url string) (code int, text string, err error) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// TestMissingPermissionIsNamed verifies that the operator also detects a missing permission that no controller needs to
// start: it is not ready, names the permission, and becomes ready without a restart once the permission is granted.
func TestMissingPermissionIsNamed(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	role := &rbacv1.ClusterRole{}
	w.Must(w.Client.Get(t.Context(), types.NamespacedName{Name: "t9k-operator"}, role))
	whole := role.DeepCopy()
	for i := range role.Rules {
		if r := &role.Rules[i]; slices.Equal(r.Resources, []string{"services"}) {
			r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return verb == "create" })
		}
	}
	w.Must(w.Client.Update(t.Context(), role))
	w.awaitRight(false, authorization.ResourceAttributes{Verb: "create", Resource: "services"})
	w.awaitRight(true, authorization.ResourceAttributes{Verb: "list", Resource: "services"})
	health := freeAddress(t)
	operator := startOperator(t, w.serviceAccountKubeconfig("t9k-operator"), "health: {bindAddress: '"+health+"'}")
	const problem = "may not create services: grant its ServiceAccount the roles of config/rbac"
	w.Await("the operator says that it may not create services", func() error {
		code, text, err := fetch("http://" + health + "/readyz?verbose")
		if err == nil && (code == http.StatusOK || !strings.Contains(text, problem) || !strings.Contains(text, "[+]caches ok")) {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
	w.Await("the log says so once", func() error { // the log line follows the answer
		if log := operator.Log.String(); strings.Count(log, "create services") != 1 {
			return fmt.Errorf("the log does not say once that it may not create services:\n%s", log)
		}
		return nil
	})
	w.Must(w.Client.Get(t.Context(), types.NamespacedName{Name: "t9k-operator"}, role))
	role.Rules = whole.Rules
	w.Must(w.Client.Update(t.Context(), role))
	w.Await("the operator is ready", func() error {
		code, text, err := fetch("http://" + health + "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d: %s", code, text)
		}
		return err
	})
}
