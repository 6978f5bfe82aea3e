package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// movingQueue is the scheduler's queue. It is told of each event that may let pods fit, when the scheduler's cache has taken the
// event in. The planner's own informers may hear of the event before that, and a round would not see yet what it brought about.
type movingQueue struct {
	internalqueue.SchedulingQueue
	index *index
}

// MoveAllToActiveOrBackoffQueue implements the queue.
func (q *movingQueue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any, check internalqueue.PreEnqueueCheck) {
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	q.index.moved(event)
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
