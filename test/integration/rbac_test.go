package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/webhook"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/plane"
)

// TestOperatorUsesExactlyItsPermissions makes the operator do everything it can do as the ServiceAccount of
// config/default. It verifies that no request is forbidden and that the operator uses every permission of its roles.
func TestOperatorUsesExactlyItsPermissions(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	log := w.auditEnd()
	kubeconfig := w.serviceAccountKubeconfig("t9k-operator")
	address := freeAddress(t)
	w.pointWebhook(address)

	// streaming is the environment variable that turns streaming lists on or off. Without streaming lists, the operator
	// sends list requests.
	const streaming = "KUBE_FEATURE_WatchListClient"
	first := startOperatorWith(t, []string{streaming + "=false"}, kubeconfig, electing)
	w.Create(jobs.New("listed", jobs.Role("w", 1, kubelet.Exit, "0")))
	w.awaitPhase("listed", batch.JobSucceeded)
	first.Signal(syscall.SIGTERM) // the operator also releases its lease
	<-first.Ended()
	metrics := freeAddress(t)
	startOperatorWith(t, []string{streaming + "=true"}, kubeconfig, electing, "jobs: {forceDeleteAfter: 1ns}", "webhook: {bindAddress: '"+address+"'}",
		"metrics: {bindAddress: '"+metrics+"'}", "tensorBoards: {idleAfter: 1s, suspendAfter: 1ns}")
	w.awaitWebhook()
	w.checkAccess(metrics, w.metricsToken("reader", "t9k-metrics-reader"), w.metricsToken("other", ""), http.StatusUnauthorized)
	w.useEverything()
	w.useTensorBoards()
	w.useQueues()

	w.checkUse(operatorUser, log, []string{"t9k-operator", "t9k-operator-webhook", "t9k-operator-webhook-certificate"}, func(p permission) string {
		switch {
		case p.verb == "update" && strings.HasSuffix(p.resource, "/finalizers"):
			return "the API server checks it when the operator creates objects with owners; see TestMissingFinalizersPermissionIsReported"
		case p.verb == "use":
			return "the API server checks it when the operator creates pods for a queue"
		}
		return ""
	})
}

// TestMissingFinalizersPermissionIsReported verifies that a job reports the API server's refusal in a cluster that
// lets a controller block the deletion of an owner only if it may update the owner's finalizers.
func TestMissingFinalizersPermissionIsReported(t *testing.T) {
	w := newWorld(t)
	w.installDefault()
	w.revoke("genericjobs/finalizers")
	w.awaitRight(false, finalizers)
	startOperator(t, w.serviceAccountKubeconfig("t9k-operator"))
	w.Create(jobs.New("job", jobs.Role("w", 1, kubelet.Run)))
	if c := w.awaitReason("job", batch.ReasonCreateRefused); !strings.Contains(c.Message, "blockOwnerDeletion") {
		t.Errorf("the refusal is: %s", c.Message)
	}
}

// revoke removes all rights on a resource from the operator's ClusterRole t9k-operator.
func (w *world) revoke(resource string) {
	w.Helper()
	granted := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "t9k-operator"}}
	w.Update(granted, func() {
		for i := range granted.Rules {
			r := &granted.Rules[i]
			r.Resources = slices.DeleteFunc(r.Resources, func(name string) bool { return name == resource })
		}
		granted.Rules = slices.DeleteFunc(granted.Rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 })
	})
}

// installDefault applies config/default, or config/before-1.36 if the API server does not support mutating admission
// policies, and waits until the operator's roles are in force. After the test, it removes the objects that other tests
// create themselves.
func (w *world) installDefault() {
	w.Helper()
	dir := "../../config/default"
	if w.minorVersion() < 36 {
		dir = "../../config/before-1.36"
	}
	w.kubectlApply(dir)
	for _, o := range []client.Object{
		&admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "t9k-batch"}},
		&admissionregistration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "t9k-batch"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: "t9k-webhook-cert"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "t9k-operator"}},
	} {
		w.Cleanup(func() {
			if err := w.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
				w.Error(err)
			}
		})
	}
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		w.awaitRight(true, authorization.ResourceAttributes{Verb: "patch", Group: "admissionregistration.k8s.io",
			Resource: resource, Name: "t9k-batch"})
	}
	w.awaitRight(true, authorization.ResourceAttributes{Verb: "update", Resource: "secrets", Namespace: config.Namespace, Name: "t9k-webhook-cert"})
	w.awaitRight(true, finalizers)
}

var finalizers = authorization.ResourceAttributes{Verb: "update", Group: batch.GroupVersion.Group, Resource: "genericjobs", Subresource: "finalizers"}

// awaitRight waits until the API server allows the operator an action, or forbids it if may is false.
func (w *world) awaitRight(may bool, attributes authorization.ResourceAttributes) {
	w.Helper()
	w.awaitRightOf(operatorUser, may, attributes)
}

func (w *world) awaitRightOf(user string, may bool, attributes authorization.ResourceAttributes) {
	w.Helper()
	w.Await("the roles are in force", func() error {
		review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &attributes}}
		w.Must(w.Client.Create(w.Context(), review))
		if review.Status.Allowed != may {
			return fmt.Errorf("%s %s is allowed: %t", attributes.Verb, attributes.Resource, !may)
		}
		return nil
	})
}

// pointWebhook makes the webhooks of config/default call the address.
func (w *world) pointWebhook(address string) {
	w.Helper()
	validating := &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "t9k-batch"}}
	mutating := &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "t9k-batch"}}
	for _, hook := range []struct {
		in    client.Object
		index int
		path  string
	}{{validating, 0, webhook.Path}, {mutating, 0, webhook.DefaultPath}, {mutating, 1, webhook.NotePath}} {
		patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/%d/clientConfig","value":{"url":"https://%s%s"}}]`, hook.index, address, hook.path)
		w.Must(w.Client.Patch(w.Context(), hook.in, client.RawPatch(types.JSONPatchType, []byte(patch))))
	}
}

// serviceAccountKubeconfig writes a kubeconfig with a token of a ServiceAccount in the operator's namespace, and
// returns its path.
func (w *world) serviceAccountKubeconfig(name string) string {
	w.Helper()
	request, err := w.Core.CoreV1().ServiceAccounts(config.Namespace).CreateToken(w.Context(), name, &authentication.TokenRequest{}, metav1.CreateOptions{})
	w.Must(err)
	path := filepath.Join(w.TempDir(), "kubeconfig")
	w.Must(plane.WriteKubeconfig(path, &clientcmdapi.Cluster{Server: w.Env.Config.Host,
		CertificateAuthorityData: w.Env.Config.CAData, CertificateAuthority: w.Env.Config.CAFile},
		&clientcmdapi.AuthInfo{Token: request.Status.Token}))
	return path
}

// useEverything makes the operator do everything that it can do for jobs.
func (w *world) useEverything() {
	w.Helper()
	gang := &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "default"}}
	second := int32(1)
	one := jobs.Role("w", 1, kubelet.Run)

	// Restarts delete pods, and the operator deletes the job at the end of its time to live.
	short := jobs.New("short", jobs.Restarting(jobs.Role("w", 2, kubelet.Exit, "1", "1", "0"), batch.RestartOnFailure, 3))
	short.Spec.Service, short.Spec.Scheduler, short.Spec.TTLSecondsAfterFinished = &batch.ServiceOption{}, gang, &second
	all := []client.Object{short}
	for _, k := range kinds.All {
		if k.Training != nil {
			all = append(all, w.shortTraining(k))
		}
	}
	for _, job := range all {
		w.Create(job)
	}
	for _, job := range all {
		w.Await("job "+job.GetName()+" has ended and no longer exists", func() error { return namespace.Gone(w.Get(job.GetName(), job)) })
	}

	// The group follows the job's priority.
	job := jobs.New("priority", one)
	job.Spec.Scheduler = gang
	w.Create(job)
	w.awaitPhase("priority", batch.JobRunning)
	w.patch("priority", `{"spec":{"scheduler":{"t9kScheduler":{"priority":7}}}}`)

	// If a name is taken, the operator reads the owner.
	for _, o := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-w-0"}, Spec: one.Template.Spec},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "service"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "group"}, Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: "q"}},
	} {
		w.Create(o)
		name := strings.TrimSuffix(o.GetName(), "-w-0")
		job := jobs.New(name, one)
		job.Spec.Service, job.Spec.Scheduler = &batch.ServiceOption{}, gang
		w.Create(job)
		w.awaitReason(name, batch.ReasonNameTaken)
	}

	// If a pod cannot terminate, the operator reads its node.
	job = jobs.New("lost")
	job.Spec.ReplicaSpecs = []batch.ReplicaSpec{jobs.Role("w", 1, kubelet.Run)}
	job.Spec.ReplicaSpecs[0].Template.Spec.NodeSelector = map[string]string{kubelet.NodeKey: "lost-gone"}
	w.Create(job)
	w.awaitPhase("lost", batch.JobRunning)
	w.Must(w.Client.Delete(w.Context(), w.pods()["lost-w-0"], client.GracePeriodSeconds(1)))
	w.Await("the pod is replaced", func() error {
		if r := w.job("lost").Status.Tasks[0].Replicas[0]; r.Attempt != 1 {
			return fmt.Errorf("the replica is %+v", r)
		}
		return nil
	})

	w.useStop()

	// If a pod has a node and does not start, the operator reads its events after a while.
	w.Create(jobs.New("held-up", jobs.Role("w", 1, kubelet.Stick)))
	w.awaitUse(operatorUser, permission{verb: "list", resource: "events"})

	w.Await("the group has the priority", func() error {
		group := &scheduling.PodGroup{}
		w.Must(w.Get("priority", group))
		if group.Spec.Priority != 7 {
			return fmt.Errorf("it is %d", group.Spec.Priority)
		}
		return nil
	})
}

// shortTraining returns a training job that names a queue. The job restarts twice, succeeds, and is deleted a second
// later.
func (w *world) shortTraining(k kinds.Kind) client.Object {
	w.Helper()
	job := kindtest.Minimal(w, os.DirFS(kindsDir), k)
	job.SetName("short-" + k.ShortName)
	w.Must(unstructured.SetNestedField(job.Object, "default", "spec", "scheduler", "t9kScheduler", "queue"))
	w.Must(unstructured.SetNestedField(job.Object, int64(1), "spec", "runPolicy", "ttlSecondsAfterFinished"))
	role := job.Object["spec"].(map[string]any)["replicaSpecs"].([]any)[0].(map[string]any)
	containers, _, err := unstructured.NestedSlice(role, "template", "spec", "containers")
	w.Must(err)
	containers[0].(map[string]any)["command"] = []any{kubelet.Exit, "1", "1", "0"}
	w.Must(unstructured.SetNestedSlice(role, containers, "template", "spec", "containers"))
	return job
}

// useStop simulates a pod whose main container has ended while a sidecar still runs. The operator patches the pod to
// stop the sidecar.
func (w *world) useStop() {
	w.Helper()
	worker := batch.TrainingReplicaSpec{Type: "worker", Template: jobs.Role("worker", 1, kubelet.Run).Template}
	c := worker.Template.Spec.Containers[0]
	c.Name = "sidecar"
	worker.Template.Spec.Containers = append(worker.Template.Spec.Containers, c)
	w.Create(&batch.PyTorchTrainingJob{ObjectMeta: metav1.ObjectMeta{Name: "guarded"},
		Spec: batch.PyTorchTrainingJobSpec{ReplicaSpecs: []batch.PyTorchReplicaSpec{{TrainingReplicaSpec: worker}}}})
	w.Await("the main container has ended", func() error {
		pod := w.pods()["guarded-worker-0"]
		if pod == nil || pod.Status.Phase != corev1.PodRunning {
			return errors.New("its pod does not run")
		}
		ended := metav1.NewTime(time.Now().Add(-time.Minute))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: ended, FinishedAt: ended}}},
			{Name: c.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ended}}},
		}
		return w.Client.Status().Update(w.Context(), pod)
	})
	w.awaitUse(operatorUser, permission{verb: "patch", resource: "pods"})
}
