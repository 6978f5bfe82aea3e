package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// planningQueue is the scheduler's queue without the pods that wait for a plan: at each event it goes over all pods
// that it has, and of these no event makes one fit without a plan.
//
// The planner is told of each event that may let pods fit, when the scheduler's cache has taken the event in. The
// planner's own informers may hear of the event before that, and a round would not see yet what it brought about.
type planningQueue struct {
	internalqueue.SchedulingQueue
	pods    *queuedPods
	planner *planner
}

// Add implements the queue.
func (q *planningQueue) Add(ctx context.Context, pod *corev1.Pod) {
	if !q.keep(pod) {
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// Update implements the queue.
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
		q.planner.inbox.post(q.planner.index.wake)
	}
	return kept
}

// Delete implements the queue.
func (q *planningQueue) Delete(pod *corev1.Pod) {
	q.pods.remove(pod.UID)
	q.SchedulingQueue.Delete(pod)
}

// take takes out a pod for its scheduling cycle; nil if it is not there any more. PreEnqueue lets it through only
// meanwhile.
func (q *planningQueue) take(ctx context.Context, logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	if kept := q.pods.release(pod.UID); kept != nil {
		q.SchedulingQueue.Add(klog.NewContext(ctx, logger), kept) // held back, so that nobody else pops it
	}
	q.pods.setTaken(pod.UID)
	defer q.pods.setTaken("")
	return q.PopSpecificPod(logger, pod)
}

// MoveAllToActiveOrBackoffQueue implements the queue.
func (q *planningQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any, check internalqueue.PreEnqueueCheck) {
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	if x := q.planner.index; mayMakeRoom(event) || brings(event) {
		q.planner.inbox.post(func() { x.wakeFor(event) })
	}
}

// mayMakeRoom tells of events that may let a pod fit because something has gone.
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

// brings tells of events that may let a pod fit because another one has come that attracts it.
func brings(event fwk.ClusterEvent) bool {
	return event.Resource == framework.EventAssignedPodAdd.Resource && event.ActionType != fwk.Update &&
		event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0
}

// wakeFor wakes the groups that wait, if the event may let one of them fit.
func (x *index) wakeFor(event fwk.ClusterEvent) {
	if mayMakeRoom(event) || len(x.attracted) > 0 {
		x.freed++
		x.wake()
	}
}

// attracted tells whether other pods can make a pod fit by coming.
func attracted(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	return a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		len(pod.Spec.TopologySpreadConstraints) > 0
}
