package plugin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// planningQueue is the scheduler's queue without the pods that wait for a plan. The scheduler's queue goes through
// all of its pods at each event, and no event makes these pods fit without a plan.
//
// planningQueue passes events that may let pods fit to the planner after the scheduler's cache has processed them.
// The planner's own informers may see the event earlier, when a round would not see its effect yet.
type planningQueue struct {
	internalqueue.SchedulingQueue
	pods    *queuedPods
	planner *planner
}

// Add implements SchedulingQueue.
func (q *planningQueue) Add(ctx context.Context, pod *corev1.Pod) {
	if !q.keep(pod) {
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// Update implements SchedulingQueue.
func (q *planningQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	if !q.keep(pod) {
		q.SchedulingQueue.Update(ctx, old, pod)
	}
}

func (q *planningQueue) keep(pod *corev1.Pod) bool {
	if !ours(pod) {
		return false
	}
	kept, fresh := q.pods.keep(pod)
	if fresh {
		q.planner.inbox.post(func(time.Time) { q.planner.index.wake() })
	}
	return kept
}

// Delete implements SchedulingQueue.
func (q *planningQueue) Delete(pod *corev1.Pod) {
	q.pods.remove(pod.UID)
	q.SchedulingQueue.Delete(pod)
}

// take removes a pod from the queue for its scheduling cycle; nil if it is no longer there. PreEnqueue lets the pod
// pass only during this call.
func (q *planningQueue) take(ctx context.Context, logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	if kept := q.pods.release(pod.UID); kept != nil {
		q.SchedulingQueue.Add(klog.NewContext(ctx, logger), kept) // PreEnqueue holds the pod back, so that no other caller pops it
	}
	q.pods.setTaken(pod.UID)
	defer q.pods.setTaken("")
	return q.PopSpecificPod(logger, pod)
}

// MoveAllToActiveOrBackoffQueue implements SchedulingQueue.
func (q *planningQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any, check internalqueue.PreEnqueueCheck) {
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	if x := q.planner.index; mayMakeRoom(event) || mayAttract(event) {
		q.planner.inbox.post(func(time.Time) { x.wakeFor(event) })
	}
}

// mayMakeRoom reports whether an event may let a pod fit because something has gone.
func mayMakeRoom(event fwk.ClusterEvent) bool {
	const makesRoom = fwk.Delete | fwk.UpdatePodScaleDown
	switch event.Resource {
	case framework.EventUnscheduledPodAdd.Resource, fwk.WildCard:
		return false
	case framework.EventAssignedPodAdd.Resource:
		return event.ActionType != fwk.Update && event.ActionType&makesRoom != 0
	}
	return true
}

// mayAttract reports whether an event may let a pod fit because another pod has come that attracts it.
func mayAttract(event fwk.ClusterEvent) bool {
	return event.Resource == framework.EventAssignedPodAdd.Resource && event.ActionType != fwk.Update &&
		event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0
}

// wakeFor requests a round that tries all waiting groups if the event may let one of them fit.
func (x *index) wakeFor(event fwk.ClusterEvent) {
	if mayMakeRoom(event) || len(x.attracted) > 0 {
		x.freed++
		x.wake()
	}
}

// attracted reports whether new pods elsewhere can make a pod fit.
func attracted(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	return a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		len(pod.Spec.TopologySpreadConstraints) > 0
}
