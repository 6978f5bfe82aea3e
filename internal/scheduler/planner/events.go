package planner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/podspec"
	"tensorstack.dev/batch/internal/scheduler/rights"
)

// The methods of this file are the messages to the planner. Any goroutine may call them: they never block.

// PodSeen means that a pod that has not finished is new or has changed.
func (pl *Planner) PodSeen(pod *corev1.Pod) {
	if podspec.Ours(pod) || isForeign(pod) {
		pl.inbox.post(func(now time.Time) { pl.podSeen(pod, now) })
	}
}

// PodGone means that a pod has finished or is deleted.
func (pl *Planner) PodGone(pod *corev1.Pod) {
	pl.inbox.post(func(now time.Time) { pl.podGone(pod, now) })
}

// FinishedSeen means that a member of a group has finished.
func (pl *Planner) FinishedSeen(o *metav1.PartialObjectMetadata) {
	pl.inbox.post(func(now time.Time) { pl.index.finishedSeen(o, now) })
}

// FinishedGone means that a finished member of a group is deleted.
func (pl *Planner) FinishedGone(o *metav1.PartialObjectMetadata) {
	pl.inbox.post(func(now time.Time) { pl.index.finishedGone(o, now) })
}

// PodGroupSeen means that a PodGroup is new or has changed.
func (pl *Planner) PodGroupSeen(pg *scheduling.PodGroup) {
	pl.inbox.post(func(now time.Time) { pl.index.podGroupSeen(pg, now) })
}

// PodGroupGone means that a PodGroup is deleted.
func (pl *Planner) PodGroupGone(pg *scheduling.PodGroup) {
	pl.inbox.post(func(now time.Time) { pl.index.podGroupGone(pg, now) })
}

// QueueSeen means that a queue is new or has changed.
func (pl *Planner) QueueSeen(q *scheduling.Queue) {
	pl.inbox.post(func(time.Time) { pl.index.queueSeen(q) })
}

// QueueGone means that a queue is deleted.
func (pl *Planner) QueueGone(q *scheduling.Queue) {
	pl.inbox.post(func(time.Time) { pl.index.queueGone(q) })
}

// NodeSeen means that a node is new, or that its last version was old.
func (pl *Planner) NodeSeen(old, node *corev1.Node) {
	if old == nil || !alike(old, node) {
		pl.inbox.post(func(time.Time) { pl.index.roomMade(true) })
	}
}

// NodeGone means that a node is deleted.
func (pl *Planner) NodeGone(*corev1.Node) {
	pl.inbox.post(func(time.Time) { pl.index.roomMade(true) })
}

// NamespaceLabeled means that the labels of a namespace have changed, which a queue may select now.
func (pl *Planner) NamespaceLabeled() {
	pl.inbox.post(func(time.Time) { pl.index.roomMade(false) })
}

// Answered means that the API server has answered a question about a right.
func (pl *Planner) Answered(q rights.Question, allowed bool) {
	pl.inbox.post(func(now time.Time) {
		pl.sources.Rights.Answer(q, allowed, now)
		pl.index.answered()
	})
}

// Unbound means that a pod passed its scheduling cycle and was not bound.
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
