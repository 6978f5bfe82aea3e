// Package podqueue is kube-scheduler's queue without the pods that wait for a plan. The scheduler's queue goes through
// all of its pods at each event, and no event makes these pods fit without a plan.
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

// Listener hears of what may let groups be planned. The queue calls it on the goroutines of the scheduler's event
// handlers, which hold locks: it must not block.
type Listener interface {
	// PodArrived means that the queue has received a new pod.
	PodArrived()
	// RoomMade means that something has gone that may let a pod fit.
	RoomMade()
	// PodAttracts means that a bound pod has come or has new labels, which may let a pod fit that it attracts.
	PodAttracts()
}

// Queue keeps the pods of the t9k-scheduler out of the scheduler's own queue until Take. The planner's informers may
// see these pods at another time. A gang is planned only when all of its pods are here, because only then can they be
// taken.
//
// Queue passes events that may let pods fit to the listener after the scheduler's cache has processed them. The
// planner's own informers may see the event earlier, when a round would not see its effect yet.
type Queue struct {
	internalqueue.SchedulingQueue
	listener Listener

	// The queue is not the planner's alone, so it has a lock: event handlers must know at once whether a pod is kept,
	// and the scheduler's queue calls Admits under its own lock, on any goroutine.
	mu sync.Mutex
	// pods has a nil value for pods that are in the scheduler's queue.
	pods map[types.UID]*corev1.Pod
	// taken is the pod that is being taken out of the scheduler's queue.
	taken types.UID
}

// New returns a queue around the scheduler's.
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
	if !q.keep(pod) {
		q.SchedulingQueue.Update(ctx, old, pod)
	}
}

// Delete implements SchedulingQueue.
func (q *Queue) Delete(pod *corev1.Pod) {
	q.Remove(pod.UID)
	q.SchedulingQueue.Delete(pod)
}

// keep stores a new pod, or a new version of a stored one. It returns false if the pod belongs into the scheduler's
// queue.
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

// Remove forgets a pod that is bound or has gone.
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

// Take removes a pod from the queue for its scheduling cycle; nil if it is no longer there.
func (q *Queue) Take(ctx context.Context, logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	if kept := q.release(pod.UID); kept != nil {
		q.SchedulingQueue.Add(klog.NewContext(ctx, logger), kept) // PreEnqueue holds the pod back, so that no other caller pops it
	}
	q.setTaken(pod.UID)
	defer q.setTaken("")
	return q.PopSpecificPod(logger, pod)
}

// Admits reports whether PreEnqueue may let a pod pass, which it may only while the pod is being taken. PreEnqueue gets
// no context from its caller that could say so.
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

// release removes and returns a stored pod that goes into the scheduler's queue; nil if it is not stored.
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

// makesRoom reports whether an event may let a pod fit because something has gone.
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

// attracts reports whether an event may let a pod fit because another pod has come that attracts it.
func attracts(event fwk.ClusterEvent) bool {
	return event.Resource == framework.EventAssignedPodAdd.Resource && event.ActionType != fwk.Update &&
		event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0
}
