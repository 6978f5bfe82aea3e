// Package podqueue provides kube-scheduler's queue without the pods that wait for a plan. The scheduler's queue
// examines all of its pods at each event, but a pod that waits for a plan does not become schedulable by an event
// alone.
package podqueue

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"tensorstack.dev/batch/internal/scheduler/podspec"
)

// Listener is notified of changes after which groups may be planned. The queue calls it on the goroutines of the
// scheduler's event handlers, which hold locks, so the methods must not block.
type Listener interface {
	// PodArrived reports that the queue has received a new pod of the t9k-scheduler.
	PodArrived()
	// RoomMade reports an event after which a pod may fit, such as a bound pod that is gone, or a new or changed node.
	RoomMade()
	// PodAttracts reports that a bound pod is new or has new labels, after which a pod with affinity to it may fit.
	PodAttracts()
}

// Queue keeps the pods of the t9k-scheduler out of the scheduler's own queue until Take. The planner's informers may
// see these pods at another time. The planner plans a gang only when the queue has all of its pods, because Take can
// return only these.
//
// Queue notifies the listener of events after which pods may fit. It does so when the scheduler's cache has processed
// the event. The planner's own informers may see the event earlier, when a round would not see its effect yet.
type Queue struct {
	internalqueue.SchedulingQueue
	listener Listener

	// mu protects the fields below. The planner is not the only user of the queue: event handlers must know immediately
	// whether a pod is kept, and the scheduler's queue calls Admits under its own lock, on any goroutine.
	mu sync.Mutex
	// pods are the pods of the t9k-scheduler by UID. The value is nil for pods that Take has moved to the scheduler's
	// queue.
	pods map[types.UID]*corev1.Pod
	// taken is the pod that is being taken out of the scheduler's queue; empty if there is none.
	taken types.UID
}

// New returns a queue around the scheduler's queue.
func New(queue internalqueue.SchedulingQueue, listener Listener) *Queue {
	return &Queue{SchedulingQueue: queue, listener: listener, pods: map[types.UID]*corev1.Pod{}}
}

// Add implements SchedulingQueue.
func (q *Queue) Add(ctx context.Context, pod *corev1.Pod) {
	if !q.keep(pod) {
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// Update implements SchedulingQueue.
func (q *Queue) Update(ctx context.Context, old, pod *corev1.Pod) {
	if old.UID != pod.UID { // the pod was deleted and created again while the watch was interrupted
		q.Delete(old)
		q.Add(ctx, pod)
		return
	}
	if !q.keep(pod) {
		q.SchedulingQueue.Update(ctx, old, pod)
	}
}

// Delete implements SchedulingQueue.
func (q *Queue) Delete(pod *corev1.Pod) {
	q.Remove(pod.UID)
	q.SchedulingQueue.Delete(pod)
}

// keep stores a new pod, or a new version of a stored pod, and reports whether it did. It notifies the listener of a
// new pod. Other pods belong in the scheduler's queue.
func (q *Queue) keep(pod *corev1.Pod) bool {
	if !podspec.Ours(pod) {
		return false
	}
	kept, fresh := q.store(pod)
	if fresh {
		q.listener.PodArrived()
	}
	return kept
}

func (q *Queue) store(pod *corev1.Pod) (kept, fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old, known := q.pods[pod.UID]
	if known && old == nil {
		return false, false
	}
	q.pods[pod.UID] = pod
	return true, !known
}

// Remove forgets a pod that is bound or gone.
func (q *Queue) Remove(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pods, uid)
}

// Has reports whether the queue has received a pod that still waits.
func (q *Queue) Has(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.pods[uid]
	return ok
}

// Take removes a pod from the queue for its scheduling cycle, and returns its latest version. It returns nil if the pod
// is no longer there.
func (q *Queue) Take(ctx context.Context, logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	if kept := q.release(pod.UID); kept != nil {
		// PreEnqueue holds the pod back, so that no other caller pops it.
		q.SchedulingQueue.Add(klog.NewContext(ctx, logger), kept)
	}
	q.setTaken(pod.UID)
	defer q.setTaken("")
	return q.PopSpecificPod(logger, pod)
}

// Admits reports whether PreEnqueue may let a pod pass, which is allowed only while the pod is being taken. The queue
// keeps this state because the caller of PreEnqueue passes no context.
func (q *Queue) Admits(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken == uid
}

// setTaken sets the pod that is being taken out of the scheduler's queue; empty for none.
func (q *Queue) setTaken(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = uid
}

// release removes and returns a stored pod that moves to the scheduler's queue. It returns nil if the pod is not
// stored.
func (q *Queue) release(uid types.UID) *corev1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	pod := q.pods[uid]
	if pod != nil {
		q.pods[uid] = nil
	}
	return pod
}

// MoveAllToActiveOrBackoffQueue implements SchedulingQueue.
func (q *Queue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, old, obj any, check internalqueue.PreEnqueueCheck) {
	q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, obj, check)
	switch {
	case makesRoom(event):
		q.listener.RoomMade()
	case attracts(event):
		q.listener.PodAttracts()
	}
}

// makesRoom reports whether a pod may fit after an event: a bound pod is gone or requests less, or an object of another
// kind, such as a node, has been added, changed or deleted.
func makesRoom(event fwk.ClusterEvent) bool {
	const frees = fwk.Delete | fwk.UpdatePodScaleDown
	switch event.Resource {
	case framework.EventUnscheduledPodAdd.Resource, fwk.WildCard:
		return false
	case framework.EventAssignedPodAdd.Resource:
		return event.ActionType != fwk.Update && event.ActionType&frees != 0
	}
	return true
}

// attracts reports whether a pod may fit after an event because of its affinity to another pod.
func attracts(event fwk.ClusterEvent) bool {
	return event.Resource == framework.EventAssignedPodAdd.Resource && event.ActionType != fwk.Update &&
		event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0
}
