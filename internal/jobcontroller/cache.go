package jobcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// ownerIndex is the index of pods by the UID of the controlling job.
const ownerIndex = "jobUID"

func indexPods(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, ownerIndex, func(o client.Object) []string {
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing pods by job: %w", err)
	}
	return nil
}

// CacheOptions returns options that save memory: the caches hold only the pods and Services of jobs, and only the
// fields of these pods that this package and the engine read. Pods and jobs from the caches are shared and must not be
// modified.
func CacheOptions() (cache.Options, error) {
	ofJobs, err := labels.NewRequirement(batch.LabelJobName, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("selecting the pods of jobs: %w", err)
	}
	selector := labels.NewSelector().Add(*ofJobs)
	share := true
	objects := map[client.Object]cache.ByObject{
		&corev1.Pod{}:     {Label: selector, Transform: trimCached, UnsafeDisableDeepCopy: &share},
		&corev1.Service{}: {Label: selector},
	}
	for _, kind := range kinds.All {
		objects[kind.New()] = cache.ByObject{UnsafeDisableDeepCopy: &share}
	}
	return cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: objects}, nil
}

func trimCached(in any) (any, error) {
	if pod, ok := in.(*corev1.Pod); ok {
		return trimPod(pod), nil
	}
	return in, nil
}

// trimPod returns a new pod with only the fields that this package and the engine read. The new pod shares data with
// the given one.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds, OwnerReferences: pod.OwnerReferences,
			Labels: keep(pod.Labels, batch.LabelJobName, batch.LabelReplicaAttempt),
			Annotations: keep(pod.Annotations, batch.AnnotationRestarts, batch.AnnotationBackoff, batch.AnnotationRunMode,
				batch.AnnotationJobRestarts, batch.AnnotationBackoffCount),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, ActiveDeadlineSeconds: pod.Spec.ActiveDeadlineSeconds,
			InitContainers: trimSidecars(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Conditions: trimConditions(pod.Status.Conditions),
			InitContainerStatuses: trimContainers(pod.Status.InitContainerStatuses),
			ContainerStatuses:     trimContainers(pod.Status.ContainerStatuses),
		},
	}
}

func keep(m map[string]string, keys ...string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, k := range keys {
		if v, ok := m[k]; ok {
			out[k] = v
		}
	}
	return out
}

// trimSidecars returns the init containers that have a restart policy of their own, such as native sidecars, with only
// their names and policies.
func trimSidecars(all []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range all {
		if all[i].RestartPolicy != nil {
			out = append(out, corev1.Container{Name: all[i].Name, RestartPolicy: all[i].RestartPolicy})
		}
	}
	return out
}

func trimConditions(all []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range all {
		switch {
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue: // for engine.BoundAt
			out = append(out, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		case c.Type == corev1.PodScheduled, c.Type == corev1.DisruptionTarget:
			out = append(out, c)
		}
	}
	return out
}

func trimContainers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(all) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(all))
	for i := range all {
		out[i] = corev1.ContainerStatus{Name: all[i].Name, State: all[i].State}
	}
	return out
}
