package engine

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodEnd is how a pod ended, by the rules that decide the end of its replica.
type PodEnd struct {
	// At most one of Succeeded, Failed and Disrupted is true. None is true until the replica has ended. Other containers
	// of the pod may still run then.
	Succeeded, Failed, Disrupted bool
	// Container is the container that ExitCode comes from. Without such a container, it is empty and ExitCode is nil.
	Container string
	ExitCode  *int32
	// Reason is the reason of the end, for example OOMKilled or PreemptionByScheduler; empty if there is none.
	Reason string
	// Finished is when the last of the containers that count ended; zero if it is not known.
	Finished time.Time
}

// EndOf returns how a pod ended, whether or not it is being deleted. main is the name of the container whose end alone
// is the end of the replica; empty if all containers count.
func EndOf(pod *corev1.Pod, main string) PodEnd {
	x := &Role{MainDecides: main != "", Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: main}}}}}
	result := x.lastState(pod)
	end := PodEnd{Succeeded: result == succeeded, Failed: result == failed, Disrupted: result == disrupted, ExitCode: x.exitCode(pod)}
	_, end.Finished = x.lifetime(pod)
	if !stopped(pod) { // otherwise the reason only says that the operator stopped the sidecars
		end.Reason = pod.Status.Reason
	}
	name, t := x.decidingEnd(pod)
	if t != nil {
		end.Container, end.Reason = name, cmp.Or(end.Reason, t.Reason)
	}
	if end.Disrupted {
		end.Reason = cmp.Or(disruptionReason(pod), end.Reason)
	}
	return end
}
