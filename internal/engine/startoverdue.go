package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// startGrace is how long a pod may take to start on its node before its start is overdue.
	startGrace = 5 * time.Second
	// warningRecheck is the interval at which a pod whose start is overdue is checked again.
	warningRecheck = 30 * time.Second
)

// StartOverdue returns when the controller begins to read the warning events of a pod that has a node but does not
// start, and whose status does not show why, for example because a volume cannot be mounted. The result is zero for any
// other pod. The time counts from BoundAt, because a pod may have waited for its node, or else from the pod's creation.
func StartOverdue(pod *corev1.Pod) time.Time {
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || waitingContainer(pod) != nil ||
		pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending {
		return time.Time{}
	}
	if at := BoundAt(pod); !at.IsZero() {
		return at.Add(startGrace)
	}
	return pod.CreationTimestamp.Add(startGrace)
}

// BoundAt returns when a pod was bound to a node; zero if it was not, or if the time is not known.
func BoundAt(pod *corev1.Pod) time.Time {
	if c := scheduledCondition(pod); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
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
