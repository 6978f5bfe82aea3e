package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
)

// TestTenantReachesNothingOfAnother verifies that a user with the role edit in one namespace cannot access another
// namespace, neither through the API nor through the programs of this repository.
func TestTenantReachesNothingOfAnother(t *testing.T) {
	requireStandIn(t)
	theirs := newSpace(t)
	alice := newSpaceOn(t, theirs.Plane).tenant()
	theirs.Create(theirs.newJob("secret", role("w", 1, gate.Obey)))
	theirs.claim("logs")
	theirs.Create(&tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Name: "board"},
		Spec: tensorboard.TensorBoardSpec{Image: "tensorboard", TrainingLogFilesets: []string{"t9k://pvc/logs/run"}}})
	theirs.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "confidential"}})
	theirs.awaitPhase("secret", batch.JobRunning)
	theirs.awaitBoardReady("board")

	alice.isRefusedByTheCommandLine(theirs)
	alice.isRefusedBoardAndSecret(theirs)
	alice.getsNoSecretByReference()
	alice.isRefusedQueue(theirs)
	// The operator adds no volume, account or privilege to the pods of a tenant's job, so the pods have only the rights
	// of their ServiceAccount.
	if alice.can(fmt.Sprintf("system:serviceaccount:%s:default", alice.Namespace), theirs.Namespace, "get", "", "secrets") {
		t.Error("the ServiceAccount of a tenant's pods may read secrets")
	}
}

func (t *tenant) isRefusedByTheCommandLine(theirs *space) {
	t.Helper()
	for _, line := range []string{"get", "get secret", "describe secret", "logs secret", "exec secret -- true", "pause secret", "resume secret", "delete secret",
		"debug on secret", "rerun secret", "tensorboard secret", "tensorboard board", "tensorboard board --resume", "get -A", "queue describe no-such-queue"} {
		words := strings.Fields(line)
		out, errOut, code := t.t9k(append([]string{words[0], "-n", theirs.Namespace}, words[1:]...)...)
		if code == 0 || strings.Contains(out, "Running") || strings.Contains(out, "http") {
			t.Errorf("t9k %s in another's namespace: exit code %d\n%s%s", line, code, out, errOut)
		}
		if !strings.HasPrefix(line, "queue") && !strings.Contains(errOut, "forbidden") {
			t.Errorf("the output of t9k %s lacks the refusal:\n%s", line, errOut)
		}
	}
}

// isRefusedBoardAndSecret verifies that the API server refuses the tenant's requests that would lead to a TensorBoard,
// its pod or a Secret of another namespace.
func (t *tenant) isRefusedBoardAndSecret(theirs *space) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", t.kubeconfig)
	t.Must(err)
	api, err := kubernetes.NewForConfig(config)
	t.Must(err)
	pods := &corev1.PodList{}
	t.Must(t.Client.List(t.Context(), pods, client.InNamespace(theirs.Namespace), client.MatchingLabels{tensorboard.LabelTensorBoard: "board"}))
	if len(pods.Items) != 1 {
		t.Fatalf("the TensorBoard has %d pods", len(pods.Items))
	}
	core := "/api/v1/namespaces/" + theirs.Namespace
	pod := core + "/pods/" + pods.Items[0].Name
	for path, verb := range map[string]string{
		core + "/services/board-tensorboard/proxy/":                                            "GET",
		core + "/services/board-tensorboard":                                                   "GET",
		pod + "/proxy/":                                                                        "GET",
		pod + "/portforward?ports=6006":                                                        "POST",
		pod + "/exec?command=true&container=tensorboard&stdout=true":                           "POST",
		pod + "/attach?container=tensorboard&stdout=true":                                      "POST",
		pod + "/log?container=tensorboard":                                                     "GET",
		"/apis/tensorstack.dev/v1beta1/namespaces/" + theirs.Namespace + "/tensorboards/board": "GET",
		"/apis/tensorstack.dev/v1beta1/tensorboards":                                           "GET",
		core + "/secrets/keys":                                                                 "GET",
		core + "/secrets":                                                                      "GET",
		core + "/serviceaccounts/default/token":                                                "POST",
	} {
		data, err := api.CoreV1().RESTClient().Verb(verb).RequestURI(path).DoRaw(t.Context())
		if !apierrors.IsForbidden(err) || strings.Contains(string(data), "Y29uZmlkZW50aWFs") {
			t.Errorf("%s %s: %v\n%s", verb, path, err, data)
		}
	}
	board := &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: theirs.Namespace, Name: "another"}}
	if err := t.client.Create(t.Context(), board); !apierrors.IsForbidden(err) {
		t.Errorf("a TensorBoard in another's namespace: %v", err)
	}
}

// getsNoSecretByReference verifies that objects of the tenant that name the Secret and the claim of the other namespace
// do not get them, because such names refer to objects of the same namespace.
func (t *tenant) getsNoSecretByReference() {
	t.Helper()
	worker := role("w", 1, "echo $KEY")
	worker.Template.Spec.Containers[0].Env = append(worker.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "KEY", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "AWS_SECRET_ACCESS_KEY"}}})
	t.Must(t.client.Create(t.Context(), t.newJob("reader", worker)))
	for name, fileset := range map[string]string{"store": "t9k://minio/keys/bucket", "volume": "t9k://pvc/logs/run"} {
		t.Must(t.client.Create(t.Context(), &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: name},
			Spec: tensorboard.TensorBoardSpec{Image: "tensorboard", TrainingLogFilesets: []string{fileset}}}))
	}
	t.awaitReason("reader", batch.ReasonNotStarted, `secret "keys" not found`)
	t.awaitBoardReason("store", tensorboard.ReasonNotStarted, `secret "keys" not found`)
	t.awaitBoardReason("volume", tensorboard.ReasonUnschedulable, `persistentvolumeclaim "logs" not found`)
}

func (t *tenant) isRefusedQueue(theirs *space) {
	t.Helper()
	closed := t.queue("theirs", "4", func(q *scheduling.QueueSpec) {
		q.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: theirs.Namespace}}
	})
	intruder := t.newJob("intruder", role("w", 1, gate.Obey))
	intruder.Spec.Scheduler = inQueue(closed)
	// The API server observes the queue a moment later.
	t.Await("a job in another's queue is refused", func() error {
		if err := t.client.Create(t.Context(), intruder.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	intruder.Spec.Scheduler = nil
	intruder.Annotations = map[string]string{scheduling.AnnotationRequestedBy: "somebody-else"}
	if err := t.client.Create(t.Context(), intruder); err == nil {
		t.Error("a tenant recorded another requester")
	}
}
