package integration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// useQueues makes the operator write the statuses of a queue and of a PodGroup, and delete a pod that is older than the
// queue allows.
func (w *world) useQueues() {
	w.Helper()
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{GenerateName: "short-"},
		Spec: scheduling.QueueSpec{MaxDuration: "1ms", NamespaceSelector: &metav1.LabelSelector{}}}
	w.Must(w.Client.Create(w.Context(), q))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "too-old", Labels: map[string]string{scheduling.LabelQueue: q.Name, scheduling.LabelGroupName: "too-old"}},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	w.Create(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "too-old"}, Spec: scheduling.PodGroupSpec{MinMember: 2, Queue: q.Name}})
	w.Create(pod)
	w.Await("the pod that is too old is deleted, and the group reports missing pods", func() error {
		g := &scheduling.PodGroup{}
		if err := w.Get("too-old", g); err != nil || len(g.Status.Conditions) == 0 {
			return fmt.Errorf("group: %+v, %w", g.Status, err)
		}
		err := w.Get("too-old", pod)
		if apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil {
			return nil
		}
		return fmt.Errorf("pod: %+v, %w", pod.Status, err)
	})
	w.Must(w.Client.Delete(w.Context(), q))
}
