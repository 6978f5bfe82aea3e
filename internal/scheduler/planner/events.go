package planner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/podspec"
	"tensorstack.dev/batch/internal/scheduler/rights"
)

// The methods of this file send messages to the planner. Any goroutine may call them, and they never block.

// PodSeen reports a new or changed pod that has not finished.
func (pl *Planner) PodSeen(pod *corev1.Pod) {
	if podspec.Ours(pod) || isForeign(pod) {
		pl.inbox.post(func(now time.Time) { pl.podSeen(pod, now) })
	}
}

// PodGone reports a pod that has finished or was deleted.
func (pl *Planner) PodGone(pod *corev1.Pod) {
	pl.inbox.post(func(now time.Time) { pl.podGone(pod, now) })
}

// FinishedSeen reports a finished member of a group.
func (pl *Planner) FinishedSeen(o *metav1.PartialObjectMetadata) {
	pl.inbox.post(func(now time.Time) { pl.index.finishedSeen(o, now) })
}

// FinishedGone reports that a finished member of a group was deleted.
func (pl *Planner) FinishedGone(o *metav1.PartialObjectMetadata) {
	pl.inbox.post(func(now time.Time) { pl.index.finishedGone(o, now) })
}

// PodGroupSeen reports a new or changed PodGroup.
func (pl *Planner) PodGroupSeen(pg *scheduling.PodGroup) {
	pl.inbox.post(func(now time.Time) { pl.index.podGroupSeen(pg, now) })
}

// PodGroupGone reports that a PodGroup was deleted.
func (pl *Planner) PodGroupGone(pg *scheduling.PodGroup) {
	pl.inbox.post(func(now time.Time) { pl.index.podGroupGone(pg, now) })
}

// QueueSeen reports a new or changed queue.
func (pl *Planner) QueueSeen(q *scheduling.Queue) {
	pl.inbox.post(func(time.Time) { pl.index.queueSeen(q) })
}

// QueueGone reports that a queue was deleted.
func (pl *Planner) QueueGone(q *scheduling.Queue) {
	pl.inbox.post(func(time.Time) { pl.index.queueGone(q) })
}

// NodeSeen reports a new or changed node. old is nil for a new node.
func (pl *Planner) NodeSeen(old, node *corev1.Node) {
	if old == nil || !alike(old, node) {
		pl.inbox.post(func(time.Time) { pl.index.roomMade(true) })
	}
}

// NodeGone reports that a node was deleted.
func (pl *Planner) NodeGone(*corev1.Node) {
	pl.inbox.post(func(time.Time) { pl.index.roomMade(true) })
}

// NamespaceLabeled reports that the labels of a namespace have changed, so that other queues may select the namespace.
func (pl *Planner) NamespaceLabeled() {
	pl.inbox.post(func(time.Time) { pl.index.roomMade(false) })
}

// Answered reports the API server's answer to a question about a right.
func (pl *Planner) Answered(q rights.Question, allowed bool) {
	pl.inbox.post(func(now time.Time) {
		pl.sources.Rights.Answer(q, allowed, now)
		pl.index.answered()
	})
}

// Unbound reports a pod that passed its scheduling cycle and was not bound.
func (pl *Planner) Unbound(as *Assignment) {
	pl.inbox.post(func(now time.Time) { pl.unbound(as, now) })
}

// PodArrived implements podqueue.Listener.
func (pl *Planner) PodArrived() {
	pl.inbox.post(func(time.Time) { pl.index.wake() })
}

// RoomMade implements podqueue.Listener.
func (pl *Planner) RoomMade() {
	pl.inbox.post(func(time.Time) { pl.index.roomMade(false) })
}

// PodAttracts implements podqueue.Listener.
func (pl *Planner) PodAttracts() {
	pl.inbox.post(func(time.Time) {
		if len(pl.index.attracted) > 0 {
			pl.index.roomMade(false)
		}
	})
}

func (pl *Planner) podSeen(pod *corev1.Pod, now time.Time) {
	if pod.Spec.NodeName != "" {
		pl.scheduler.Queue.Remove(pod.UID)
	}
	pl.index.podSeen(pod, now)
}

func (pl *Planner) podGone(pod *corev1.Pod, now time.Time) {
	pl.scheduler.Queue.Remove(pod.UID)
	if pod.Spec.NodeName != "" && pl.leads {
		pl.departed[pod] = now.Add(deadlineInterval)
	}
	pl.index.podGone(pod, now)
}
