package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sidecarGrace is how long the other containers of a pod may run after the main one has ended. Many sidecars watch the
// main container and end by themselves.
const sidecarGrace = 5 * time.Second

// StopDeadline is the activeDeadlineSeconds that the operator sets so that the kubelet stops all containers of a pod.
// The pod remains, with its logs and exit codes.
const StopDeadline int64 = 1

// stopped reports whether the operator has asked for the pod to stop.
func stopped(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds <= StopDeadline
}

// stopSidecars stops the containers that still run in the pod of an ended replica once sidecarGrace has passed, so that
// their resources become free.
func (p *pass) stopSidecars(r *replica) {
	if r.pod == nil || !sidecarsRun(r.pod) || stopped(r.pod) {
		return
	}
	if end := r.role.classify(r.pod); end == notEnded || end == disrupted {
		return
	}
	if at := p.end(r).At.Add(sidecarGrace); p.seen.Now.Before(at) {
		p.wakeAt(at)
		return
	}
	p.plan.Stop = append(p.plan.Stop, Stop{Name: r.pod.Name, UID: r.pod.UID})
}

// sidecarsRun reports whether the pod has regular containers that have not ended. It returns false if the pod has ended
// or is being deleted. After the last of them has ended, the kubelet ends native sidecars itself.
func sidecarsRun(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].State.Terminated == nil {
			return true
		}
	}
	return false
}
