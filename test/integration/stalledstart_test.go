package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/kubelet"
)

// TestStartAfterAWaitForANode verifies that the time that a pod waits for a node does not count as a delay of its
// start. When a pod is bound after a long wait, its job never reports the scheduler's earlier warning as the reason why
// the pod has not started. It reports a later warning about the start.
func TestStartAfterAWaitForANode(t *testing.T) {
	w := newWorld(t)
	startOperator(t, w.Env.Kubeconfig)
	w.Create(jobs.New("late", jobs.Role("w", 1, kubelet.Wait)))
	w.Await("the pod has waited for 6 seconds", func() error {
		pod := w.pods()["late-w-0"]
		if pod == nil || time.Since(pod.CreationTimestamp.Time) < 6*time.Second {
			return errors.New("it has not")
		}
		return nil
	})
	pod := w.pods()["late-w-0"]
	warn := func(name, reason, message string) {
		w.Create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.Now(),
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.Namespace, Name: pod.Name, UID: pod.UID}})
	}
	warn("waits", "FailedScheduling", "no node fits")
	w.Must(w.Client.SubResource("binding").Create(w.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "usual"}}))
	warn("mounts", "FailedMount", "no such volume")
	if c := w.awaitReason("late", batch.ReasonNotStarted); !strings.Contains(c.Message, "no such volume") {
		t.Errorf("the pod does not start because: %s", c.Message)
	}
	if all := w.events("late"); slices.ContainsFunc(all, func(e string) bool { return strings.Contains(e, "no node fits") }) {
		t.Errorf("the events are: %q", all)
	}
}
