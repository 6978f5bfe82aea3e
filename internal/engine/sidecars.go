package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// sidecarGrace is how long the other containers of a pod get to end by themselves once the main one has. Many watch it.
const sidecarGrace = 5 * time.Second

// StopDeadline is the value of a pod's activeDeadlineSeconds that has the kubelet stop what still runs in it. The pod stays,
// with its logs and its containers' exit codes.
const StopDeadline int64 = 1

// stopped tells whether a pod was asked to stop.
func stopped(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds <= StopDeadline
}

// stopSidecars stops what runs on in the pod of a replica that has ended, so that it frees what it holds.
func (p *pass) stopSidecars(r *replica) {
	if r.pod == nil || !sidecarsRun(r.pod) || stopped(r.pod) {
		return
	}
	if end := r.role.classify(r.pod); end == notEnded || end == disrupted {
		return
	}
	_, finished := r.role.lifetime(r.pod)
	if at := finished.Add(sidecarGrace); p.seen.Now.Before(at) {
		p.wakeAt(at)
		return
	}
	p.plan.Stop = append(p.plan.Stop, Stop{Name: r.pod.Name, UID: r.pod.UID})
}

// sidecarsRun tells whether a pod has regular containers that have not ended. Once all have, the kubelet ends those init
// containers that run beside them.
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
