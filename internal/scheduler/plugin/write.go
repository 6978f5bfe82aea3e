package plugin

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
	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/tracing"
)

// conditions writes the conditions of groups and pods. Groups have their own queue, so that they do not wait for the
// many pods.
type conditions struct {
	client client.Client
	core   kubernetes.Interface
	lister corelisters.PodLister
	groups *latestQueue[types.NamespacedName, groupWrite]
	pods   *latestQueue[types.UID, podWrite]
	// spans is nil if no traces are wanted.
	spans *tracing.Recorder
}

// groupWrite is a condition to write to a PodGroup, and the spans that end with it.
type groupWrite struct {
	scheduling.PodGroupCondition
	spans []tracing.Span
}

// podWrite is a report to write to the pod of this name.
type podWrite struct {
	key types.NamespacedName
	podReport
}

func newConditions(c client.Client, core kubernetes.Interface, pods corelisters.PodLister, spans *tracing.Recorder) *conditions {
	all := &conditions{client: c, core: core, lister: pods, spans: spans}
	all.groups, all.pods = newLatestQueue(true, all.writeGroup), newLatestQueue(true, all.writePod)
	return all
}

func (c *conditions) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { c.groups.run(ctx, 4) })
	both.Go(func() { c.pods.run(ctx, 4) })
	both.Wait()
}

// writeGroup writes the condition of a PodGroup.
func (c *conditions) writeGroup(ctx context.Context, key types.NamespacedName, condition groupWrite) error {
	applied := schedulingapply.PodGroupCondition().WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).
		WithLastTransitionTime(condition.LastTransitionTime).WithTransitionID(condition.TransitionID)
	if condition.Message != "" {
		applied.WithMessage(condition.Message)
	}
	group := schedulingapply.PodGroup(key.Name, key.Namespace).WithStatus(schedulingapply.PodGroupStatus().WithConditions(applied))
	err := c.client.Status().Apply(ctx, group, client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the condition of PodGroup %s: %w", key, err)
	}
	logger := klog.FromContext(ctx)
	if condition.Status != metav1.ConditionTrue {
		logger = logger.V(2) // a group may change its reason often
	}
	logger.Info("Wrote a group's condition", "podGroup", key, "condition", condition.Type, "status", condition.Status,
		"reason", condition.Reason, "message", condition.Message)
	if err == nil {
		c.spans.Record(ctx, condition.spans...)
	}
	return nil
}

// writePod writes to a pod why it waits, if it still waits.
func (c *conditions) writePod(ctx context.Context, uid types.UID, report podWrite) error {
	pod, err := c.lister.Pods(report.key.Namespace).Get(report.key.Name)
	if err != nil || pod.UID != uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil // a lister returns no other error than NotFound
	}
	err = c.patchPod(ctx, pod, report)
	switch {
	case apierrors.IsConflict(err): // the pod has changed, and may even have been bound
		return errAgain
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("writing the condition of pod %s: %w", report.key, err)
	}
	return nil
}

// patchPod writes the condition PodScheduled of a pod, unless the pod has changed.
func (c *conditions) patchPod(ctx context.Context, pod *corev1.Pod, report podWrite) error {
	status := pod.Status.DeepCopy()
	podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: report.reason, Message: report.message, ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, corev1.PodScheduled)})
	_, condition := podutil.GetPodCondition(status, corev1.PodScheduled)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []*corev1.PodCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = c.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// evictions evicts pods in favour of others.
type evictions struct {
	core kubernetes.Interface
	// queue does not retry: the planner asks again for the evictions that it still wants.
	queue *latestQueue[types.UID, eviction]
}

// eviction is a pod as the planner saw it, and what the eviction reports.
type eviction struct {
	pod     *corev1.Pod
	message string
	cause   string
}

func newEvictions(core kubernetes.Interface) *evictions {
	e := &evictions{core: core}
	e.queue = newLatestQueue(false, e.evict)
	return e
}

func (e *evictions) run(ctx context.Context) { e.queue.run(ctx, 8) }

// add queues the eviction of a pod.
func (e *evictions) add(pod *corev1.Pod, d *core.Decision) {
	message := fmt.Sprintf("%s: preempting to make room for group %s", scheduling.SchedulerName, d.Group.Name)
	if d.Reservation == nil {
		message = fmt.Sprintf("%s: group %s was bound in part only and could not be completed", scheduling.SchedulerName, d.Group.Name)
	}
	e.queue.put(pod.UID, eviction{pod, message, evictionCause(d)})
}

// evict deletes a pod. Before that, it writes the reason to the pod, so that its controller knows that the pod did
// not fail. It counts and logs only pods that were not being deleted already: the planner may ask for an eviction again
// before its cache shows the first one.
func (e *evictions) evict(ctx context.Context, uid types.UID, v eviction) error {
	pod, err := e.mark(ctx, v)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the pod is gone; another one may have its name
		return nil
	case err != nil:
		return fmt.Errorf("marking pod %s for eviction: %w", podKey(v.pod), err)
	case pod.DeletionTimestamp != nil:
		return nil
	}
	err = e.core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(uid)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("evicting pod %s: %w", podKey(pod), err)
	}
	evictedPods.WithLabelValues(v.cause).Inc()
	klog.FromContext(ctx).Info("Evicted a pod", "pod", klog.KObj(pod), "reason", v.message)
	return nil
}

// mark writes to a pod why it is evicted, and returns the pod as it is now.
func (e *evictions) mark(ctx context.Context, v eviction) (*corev1.Pod, error) {
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
		marked, err = e.core.CoreV1().Pods(v.pod.Namespace).Patch(ctx, v.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	return marked, err
}
