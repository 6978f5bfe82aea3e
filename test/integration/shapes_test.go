package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/config"
)

// TestFollowerEnforcesResourceShapes verifies that an operator that does not lead also answers admission requests and
// enforces the resource shapes of queues.
func TestFollowerEnforcesResourceShapes(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	w.installWebhook(address)
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: "t9k-operator"}}
	startOperator(t, w.Env.Kubeconfig, electing)
	w.Await("the first operator leads", func() error { return w.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease) })
	leader := *lease.Spec.HolderIdentity
	startOperator(t, w.Env.Kubeconfig, electing, "webhook: {bindAddress: '"+address+"'}")
	w.awaitWebhook()

	shapes := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: scheduling.ResourceShapesNamespace, Name: scheduling.ResourceShapes}, Data: map[string]string{"small": "cpu: 1"}}
	w.Must(w.Client.Create(t.Context(), shapes))
	queue := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{GenerateName: "sized-"}, Spec: scheduling.QueueSpec{ResourceShapeProfile: "small", NamespaceSelector: &metav1.LabelSelector{}}}
	w.Must(w.Client.Create(t.Context(), queue))
	for _, o := range []client.Object{shapes, queue} {
		t.Cleanup(func() { w.Must(w.Client.Delete(context.WithoutCancel(t.Context()), o)) })
	}
	large := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: w.Namespace, Labels: map[string]string{scheduling.LabelQueue: queue.Name}},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: large}}}}}
	w.Await("a pod that is too large is refused", func() error {
		err := w.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "2 cpu requested, 1 allowed") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	w.Must(w.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	if *lease.Spec.HolderIdentity != leader {
		t.Errorf("%s leads instead of %s, so the test proves nothing", *lease.Spec.HolderIdentity, leader)
	}
}
