package jobcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// ownerIndex finds pods by the UID of the job that controls them.
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

// CacheOptions keeps the informers' memory small: pods and services of jobs alone, and of them what the engine reads. What
// comes out of the cache is shared and never modified.
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

// trimPod drops what nobody here reads. The engine needs a pod's identity and its end.
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

// trimSidecars keeps what tells native sidecars from init containers.
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
		waits := c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue
		if waits || c.Type == corev1.DisruptionTarget {
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

// read gathers what can be seen of a job: from the caches, and from memory what the caches do not show yet.
func (r *reconciler) read(ctx context.Context, obj kinds.Object, job *engine.Job, m *memory) (engine.Seen, error) {
	seen := engine.Seen{Now: time.Now(), Status: r.kind.Status(obj), LastWrite: m.writtenAt, Refusals: m.refusals,
		Unwritten: !m.tried && r.reign.covers(obj), ContestedSince: m.contestedSince}
	if !m.tried && seen.Status.RunMode != "" {
		seen.LastWrite = time.Time{} // by another process, who knows when: one that is killed again and again would wait for ever
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{ownerIndex: string(job.UID)},
		client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("listing the pods of %s/%s: %w", job.Namespace, job.Name, err)
	}
	seen.Pods = m.merge(pods.Items, seen.Now)
	seen.Succeeded = m.succeeded.open(seen.Status, seen.Pods)
	m.replicas.Store(int64(job.Replicas()))
	if job.Service != nil {
		ours, err := r.ownsService(ctx, job)
		if err != nil {
			return seen, err
		}
		if ours || !seen.Now.Before(m.serviceUntil) {
			m.serviceUntil = time.Time{}
		}
		seen.Service = ours || !m.serviceUntil.IsZero()
	}
	var err error
	if job.Gang != nil {
		if seen.Group, err = r.readGroup(ctx, obj, m, seen.Now); err != nil {
			return seen, err
		}
	}
	if seen.Warning, err = r.lastWarning(ctx, seen, m); err != nil {
		return seen, err
	}
	seen.LostNodes, err = r.lostNodes(ctx, seen)
	return seen, err
}

// readGroup is the job's PodGroup, or nil.
func (r *reconciler) readGroup(ctx context.Context, obj kinds.Object, m *memory, now time.Time) (*scheduling.PodGroup, error) {
	group := &scheduling.PodGroup{}
	switch err := r.client.Get(ctx, client.ObjectKeyFromObject(obj), group); {
	case err == nil && metav1.IsControlledBy(group, obj):
		m.groupUntil = time.Time{}
		return group, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading PodGroup %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	case now.Before(m.groupUntil):
		return m.group, nil
	default:
		m.groupUntil = time.Time{}
		return nil, nil
	}
}

func (r *reconciler) ownsService(ctx context.Context, job *engine.Job) (bool, error) {
	s := &metav1.PartialObjectMetadata{}
	s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := r.client.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, s)
	if err != nil {
		return false, wrapUnlessNotFound(err, "reading Service %s/%s", job.Namespace, job.Name)
	}
	owner := metav1.GetControllerOfNoCopy(s)
	return owner != nil && owner.UID == job.UID, nil
}

// lostNodes looks at the nodes of pods that should have ended long ago. There are hardly ever any, so nodes are not watched.
func (r *reconciler) lostNodes(ctx context.Context, seen engine.Seen) (map[string]bool, error) {
	var lost map[string]bool
	for _, pod := range seen.Pods {
		overdue := engine.Overdue(pod, r.opts.Engine)
		if overdue.IsZero() || seen.Now.Before(overdue) {
			continue
		}
		name := pod.Spec.NodeName
		if _, known := lost[name]; known {
			continue
		}
		if lost == nil {
			lost = map[string]bool{}
		}
		node := &corev1.Node{}
		err := r.live.Get(ctx, types.NamespacedName{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading node %s of pod %s/%s: %w", name, pod.Namespace, pod.Name, err)
		}
		lost[name] = err != nil || !nodeReady(node)
	}
	return lost, nil
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func wrapUnlessNotFound(err error, format string, args ...any) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
