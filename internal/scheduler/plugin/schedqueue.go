package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// planningQueue is the scheduler's queue without the pods that wait for a plan: at each event it goes over all pods that it has, and
// of these no event makes one fit without a plan.
//
// The index is told of each event that may let pods fit, when the scheduler's cache has taken the event in. The planner's own
// informers may hear of the event before that, and a round would not see yet what it brought about.
type planningQueue struct {
	internalqueue.SchedulingQueue
	plugin *Plugin
}

// Add implements the queue.
func (q *planningQueue) Add(ctx context.Context, pod *corev1.Pod) {
	if !q.hold(pod) {
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// Update implements the queue.
func (q *planningQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	if !q.hold(pod) {
		q.SchedulingQueue.Update(ctx, old, pod)
	}
}

func (q *planningQueue) hold(pod *corev1.Pod) bool {
	if !ours(pod) {
		return false
	}
	held, fresh := q.plugin.arrivals.hold(pod)
	if fresh {
		q.plugin.wake()
	}
	return held
}

// Delete implements the queue.
func (q *planningQueue) Delete(pod *corev1.Pod) {
	q.plugin.arrivals.remove(pod.UID)
	q.SchedulingQueue.Delete(pod)
}

// take takes out a pod for its scheduling cycle; nil if it is not there any more. Without a ticket it would be held back.
func (q *planningQueue) take(logger klog.Logger, t *ticket) *framework.QueuedPodInfo {
	if pod := q.plugin.arrivals.release(t.pod.UID); pod != nil {
		q.SchedulingQueue.Add(klog.NewContext(context.Background(), logger), pod) // held back, so that nobody else pops it
	}
	q.plugin.allow(t)
	return q.PopSpecificPod(logger, t.pod)
}

// MoveAllToActiveOrBackoffQueue implements the queue.
func (q *planningQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any, check internalqueue.PreEnqueueCheck) {
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	q.plugin.index.moved(event)
}

// moved wakes the groups that wait, if the event may let one of them fit.
func (x *index) moved(event fwk.ClusterEvent) {
	const makesRoom = fwk.Delete | fwk.UpdatePodScaleDown
	x.mu.Lock()
	defer x.mu.Unlock()
	switch event.Resource {
	case framework.EventUnscheduledPodAdd.Resource, fwk.WildCard:
		return
	case framework.EventAssignedPodAdd.Resource:
		others := event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0 && len(x.attracted) > 0
		if event.ActionType == fwk.Update || event.ActionType&makesRoom == 0 && !others {
			return
		}
	}
	x.freed++
	x.wake()
}

// attracted tells whether other pods can make a pod fit by coming.
func attracted(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	return a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		len(pod.Spec.TopologySpreadConstraints) > 0
}
