package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// startTime is how long a pod may take to start before it counts as held up.
	startTime = 5 * time.Second
	// warningRecheck is how often a pod that is held up is looked at again.
	warningRecheck = 30 * time.Second
)

// HeldUp is the time from which the warnings about a pod are worth a look: it has a node, does not start, and its status does
// not say why, as when a volume cannot be mounted. Zero stands for never.
func HeldUp(pod *corev1.Pod) time.Time {
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || waitingContainer(pod) != nil ||
		pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending {
		return time.Time{}
	}
	return pod.CreationTimestamp.Add(startTime)
}

// awaitStart comes back when a pod counts as held up, and as long as it is.
func (p *pass) awaitStart(pod *corev1.Pod) {
	at := HeldUp(pod)
	switch {
	case at.IsZero():
	case p.seen.Now.Before(at):
		p.wakeAt(at)
	default:
		p.wakeAt(p.seen.Now.Add(warningRecheck))
	}
}
