// Package writer writes the decisions of the scheduler to the API server: the conditions of groups and pods, and
// evictions. Its callers never wait for a write.
package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulingapply "tensorstack.dev/batch/api/applyconfiguration/scheduler/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/metrics"
	"tensorstack.dev/batch/internal/scheduler/latest"
	"tensorstack.dev/batch/internal/scheduler/podspec"
	"tensorstack.dev/batch/internal/tracing"
)

// FieldManager is the field manager that owns the condition GroupScheduled of PodGroups.
const FieldManager = "t9k-scheduler"

// EvictedPods counts the pods that were evicted, by cause.
var EvictedPods = metrics.SchedulerEvictedPods.Counter()

// groupWriters, podWriters and evictors are the numbers of concurrent requests of each kind.
const (
	groupWriters = 4
	podWriters   = 4
	evictors     = 8
)

// Writer writes conditions and evicts pods. Groups have a queue of their own, so that their conditions do not wait
// behind the conditions of many pods.
type Writer struct {
	client    client.Client
	clientset kubernetes.Interface
	lister    corelisters.PodLister
	groups    *latest.Queue[types.NamespacedName, groupWrite]
	pods      *latest.Queue[types.UID, podWrite]
	// evictions are not retried, because the planner repeats the evictions that it still needs.
	evictions *latest.Queue[types.UID, eviction]
	// spans is nil if tracing is disabled.
	spans *tracing.Recorder
}

// groupWrite is a condition to write to a PodGroup, with the spans to record after the write.
type groupWrite struct {
	scheduling.PodGroupCondition
	spans []tracing.Span
}

// podWrite is the reason why a pod waits, with the name of the pod.
type podWrite struct {
	key             types.NamespacedName
	reason, message string
}

// eviction is a pod as the planner saw it, with the message and the cause of its eviction.
type eviction struct {
	pod            *corev1.Pod
	message, cause string
}

// New returns a writer. It reads pods from the lister. spans is nil if tracing is disabled.
func New(c client.Client, clientset kubernetes.Interface, pods corelisters.PodLister, spans *tracing.Recorder) *Writer {
	w := &Writer{client: c, clientset: clientset, lister: pods, spans: spans}
	w.groups, w.pods, w.evictions = latest.New(true, w.writeGroup), latest.New(true, w.writePod), latest.New(false, w.evict)
	return w
}

// Run writes until ctx ends, and waits for its goroutines. It drops pending writes when ctx ends, because the next
// leader derives them again from its observations.
func (w *Writer) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.groups.Run(ctx, groupWriters) })
	all.Go(func() { w.pods.Run(ctx, podWriters) })
	all.Go(func() { w.evictions.Run(ctx, evictors) })
	all.Wait()
}

// Group queues a write of the condition of a PodGroup. The writer records the spans after the write.
func (w *Writer) Group(key types.NamespacedName, condition scheduling.PodGroupCondition, spans []tracing.Span) {
	w.groups.Put(key, groupWrite{condition, spans})
}

// Pod queues a write of the condition of a waiting pod.
func (w *Writer) Pod(pod *corev1.Pod, reason, message string) {
	w.pods.Put(pod.UID, podWrite{podspec.Key(pod), reason, message})
}

// DropPod drops the pending condition of a pod that no longer waits. It reports whether there was one.
func (w *Writer) DropPod(uid types.UID) bool { return w.pods.Drop(uid) }

// Evict queues the eviction of a pod.
func (w *Writer) Evict(pod *corev1.Pod, message, cause string) {
	w.evictions.Put(pod.UID, eviction{pod, message, cause})
}

// writeGroup writes the condition of a PodGroup, and then logs it and records the spans. It does nothing if there is no
// such PodGroup.
func (w *Writer) writeGroup(ctx context.Context, key types.NamespacedName, condition groupWrite) error {
	applied := schedulingapply.PodGroupCondition().WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).
		WithLastTransitionTime(condition.LastTransitionTime).WithTransitionID(condition.TransitionID)
	if condition.Message != "" {
		applied.WithMessage(condition.Message)
	}
	group := schedulingapply.PodGroup(key.Name, key.Namespace).WithStatus(schedulingapply.PodGroupStatus().WithConditions(applied))
	err := w.client.Status().Apply(ctx, group, client.FieldOwner(FieldManager), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err): // the group is deleted
		return nil
	case err != nil:
		return fmt.Errorf("writing the condition of PodGroup %s: %w", key, err)
	}
	logger := klog.FromContext(ctx)
	if condition.Status != metav1.ConditionTrue {
		logger = logger.V(2) // the reason of a group may change often
	}
	logger.Info("Wrote a group's condition", "podGroup", key, "condition", condition.Type, "status", condition.Status,
		"reason", condition.Reason, "message", condition.Message)
	w.spans.Record(ctx, condition.spans...)
	return nil
}

// writePod writes to a pod the reason why it waits, if the pod still waits.
func (w *Writer) writePod(ctx context.Context, uid types.UID, report podWrite) error {
	pod, err := w.lister.Pods(report.key.Namespace).Get(report.key.Name)
	if err != nil || pod.UID != uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil // a lister returns no other error than NotFound
	}
	err = w.patchPod(ctx, pod, report)
	switch {
	case apierrors.IsConflict(err): // the pod has changed, and may even have been bound
		return latest.ErrAgain
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("writing the condition of pod %s: %w", report.key, err)
	}
	return nil
}

// patchPod writes the condition PodScheduled of a pod. If the pod has changed, it returns a conflict.
func (w *Writer) patchPod(ctx context.Context, pod *corev1.Pod, report podWrite) error {
	status := pod.Status.DeepCopy()
	podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: report.reason, Message: report.message, ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, corev1.PodScheduled)})
	_, condition := podutil.GetPodCondition(status, corev1.PodScheduled)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []*corev1.PodCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = w.clientset.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// evict deletes a pod. Before that, it writes the reason to the pod, so that the controller of the pod knows that the
// pod did not fail. It counts and logs only pods that were not already being deleted, because the planner may repeat an
// eviction before its cache shows the first one.
func (w *Writer) evict(ctx context.Context, uid types.UID, v eviction) error {
	pod, err := w.mark(ctx, v)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the pod is gone, and another one may have its name
		return nil
	case err != nil:
		return fmt.Errorf("marking pod %s for eviction: %w", podspec.Key(v.pod), err)
	case pod.DeletionTimestamp != nil:
		return nil
	}
	err = w.clientset.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(uid)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("evicting pod %s: %w", podspec.Key(pod), err)
	}
	EvictedPods.WithLabelValues(v.cause).Inc()
	logger := klog.FromContext(ctx).WithValues("pod", klog.KObj(pod))
	if group := pod.Labels[scheduling.LabelGroupName]; group != "" {
		logger = logger.WithValues("podGroup", klog.KRef(pod.Namespace, group))
	}
	logger.Info("Evicted a pod", "reason", v.message)
	return nil
}

// mark writes to a pod the reason for its eviction, and returns the pod as the API server then has it.
func (w *Writer) mark(ctx context.Context, v eviction) (*corev1.Pod, error) {
	status := v.pod.Status.DeepCopy()
	podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: corev1.PodReasonPreemptionByScheduler, Message: v.message})
	_, condition := podutil.GetPodCondition(status, corev1.DisruptionTarget)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": v.pod.UID},
		"status": map[string]any{"conditions": []*corev1.PodCondition{condition}}})
	if err != nil {
		return nil, err
	}
	var marked *corev1.Pod
	err = retry.OnError(retry.DefaultBackoff, util.Retriable, func() error {
		marked, err = w.clientset.CoreV1().Pods(v.pod.Namespace).Patch(ctx, v.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	return marked, err
}
