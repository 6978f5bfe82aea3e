package engine

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PodEnd is how a pod ended, by the rules that decide the end of its replica. All fields except Succeeded, Failed and
// Disrupted may be set before the replica has ended.
type PodEnd struct {
	// At most one of Succeeded, Failed and Disrupted is true. None is true until the replica has ended. The replica
	// may have ended although other containers of the pod still run.
	Succeeded, Failed, Disrupted bool
	// Container is the container that ExitCode comes from. Without such a container, it is empty and ExitCode is nil.
	Container string
	ExitCode  *int32
	// Init is true if Container is an init container that failed, so that the regular containers did not start.
	Init bool
	// Reason is the reason of the end, for example OOMKilled or PreemptionByScheduler; empty if there is none.
	Reason string
	// Finished is when the last of the containers that count ended; zero if it is not known.
	Finished time.Time
}

// Cause returns the reason of the end; empty if it is not known. If an init container failed and the pod was not
// disrupted, Cause also names that container.
func (e *PodEnd) Cause() string {
	switch {
	case !e.Init || e.Disrupted:
		return e.Reason
	case e.Reason == "" || e.Reason == "Error":
		return "init container " + e.Container
	}
	return "init container " + e.Container + ": " + e.Reason
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
		end.Init = t.ExitCode != 0 && slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
	}
	if end.Disrupted {
		end.Reason = cmp.Or(disruptionReason(pod), end.Reason)
	}
	return end
}
