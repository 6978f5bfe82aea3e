package plugin

import (
	corev1 "k8s.io/api/core/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// guest is a pod with a node that another scheduler gave it, and with the label of a queue: what it requests counts against the quota.
type guest struct {
	queue    string
	requests core.Resources
}

// isGuest tells whether a pod is one of another scheduler that counts.
func isGuest(pod *corev1.Pod) bool {
	return !ours(pod) && pod.Labels[scheduling.LabelQueue] != "" && pod.Spec.NodeName != ""
}

func (x *index) guestSeen(pod *corev1.Pod) {
	if !isGuest(pod) {
		return
	}
	name := pod.Labels[scheduling.LabelQueue]
	requests := requestsOf(pod)
	if old, ok := x.guests[pod.UID]; ok {
		if equal(old.requests, requests) {
			return
		}
		x.count(old.queue, old.requests, -1)
	}
	x.guests[pod.UID] = guest{name, requests}
	x.count(name, requests, 1)
}

func (x *index) guestGone(pod *corev1.Pod) {
	g, ok := x.guests[pod.UID]
	if !ok {
		return
	}
	delete(x.guests, pod.UID)
	x.count(g.queue, g.requests, -1)
	x.freed++
	x.wake()
}
