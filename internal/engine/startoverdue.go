package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// startGrace is how long a pod may take to start before its start is overdue.
	startGrace = 5 * time.Second
	// warningRecheck is the interval at which a pod whose start is overdue is checked again.
	warningRecheck = 30 * time.Second
)

// StartOverdue returns the time from which the start of a pod is overdue; zero means never. From then on, the
// controller reads the pod's warning events. Such a pod has a node and does not start, and its status does not show
// why, for example because a volume cannot be mounted.
func StartOverdue(pod *corev1.Pod) time.Time {
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || waitingContainer(pod) != nil ||
		pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending {
		return time.Time{}
	}
	return pod.CreationTimestamp.Add(startGrace)
}

// awaitStart wakes the job when the start of a pod becomes overdue, and every warningRecheck after that.
func (p *pass) awaitStart(pod *corev1.Pod) {
	at := StartOverdue(pod)
	switch {
	case at.IsZero():
	case p.seen.Now.Before(at):
		p.wakeAt(at)
	default:
		p.wakeAt(p.seen.Now.Add(warningRecheck))
	}
}
