package engine

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// ending is the way in which a pod ended.
type ending int

const (
	notEnded ending = iota
	succeeded
	failed
	// disrupted means that the pod was evicted, preempted, rejected or deleted by others. The operator replaces it and
	// charges no restart.
	disrupted
)

// reasonEvicted is the pod.status.reason that a kubelet sets when it evicts a pod, either because the node is under
// pressure or because the pod exceeded its own limits.
const reasonEvicted = "Evicted"

// admissionReasons are the values of pod.status.reason with which a kubelet rejects a pod that its node cannot run at
// present. The kubelet rejects such a pod when the pod arrives or when the kubelet restarts. Another node, or the same
// node later, may accept the pod. The list leaves out reasons that apply on every node, such as PodOSNotSupported and
// SysctlForbidden. A pod with such a reason has failed.
var admissionReasons = []string{
	"NodeAffinity", "NodeName", "NodePorts", "TaintToleration", "NodeShutdown", "InvalidNodeInfo", "UnexpectedAdmissionError",
	"UnknownReason", "UnexpectedPredicateFailureType", "TopologyAffinityError", "VolumeAttachmentLimitExceeded",
}

// classify returns how the replica of a pod has ended. A pod that is being deleted counts as disrupted, unless it
// certainly ended before the request to delete it (see finishedBeforeDeletion).
func (x *Role) classify(pod *corev1.Pod) ending {
	end := x.lastState(pod)
	if pod.DeletionTimestamp == nil || end != notEnded && x.finishedBeforeDeletion(pod) {
		return end
	}
	return disrupted
}

// lastState returns how the replica of a pod has ended, whether or not the pod is being deleted.
func (x *Role) lastState(pod *corev1.Pod) ending {
	main := x.mainEnd(pod)
	switch {
	// A kubelet may report a disruption only after the containers that it killed have ended, so a failure does not show
	// that the container failed by itself.
	case main != nil && isDisrupted(pod) && (main.ExitCode != 0 || !endedBeforeDisruption(main, pod)):
		return disrupted
	case main != nil && main.ExitCode == 0 && (pod.Status.Reason != reasonEvicted || disruption(pod) != nil):
		return succeeded
	case main != nil: // failed, or exited with 0 but was evicted for exceeding its own limits
		return failed
	case pod.Status.Phase == corev1.PodSucceeded:
		return succeeded
	case pod.Status.Phase == corev1.PodFailed && isDisrupted(pod):
		return disrupted
	case pod.Status.Phase == corev1.PodFailed:
		return failed
	}
	return notEnded
}

// mainEnd returns the end of the main container. It returns nil if the main container does not decide or has not ended.
func (x *Role) mainEnd(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if !x.MainDecides {
		return nil
	}
	name := x.mainContainer()
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == name {
			return c.State.Terminated
		}
	}
	return nil
}

// ends yields the name and the termination state of each ended container that counts for the end of the replica. If the
// main container decides and has ended, only that container counts. Otherwise all containers count except native
// sidecars: the kubelet stops native sidecars after the others have ended, so their exit codes mean nothing.
func (x *Role) ends(pod *corev1.Pod) iter.Seq2[string, *corev1.ContainerStateTerminated] {
	return func(yield func(string, *corev1.ContainerStateTerminated) bool) {
		if t := x.mainEnd(pod); t != nil {
			yield(x.mainContainer(), t)
			return
		}
		for i := range pod.Status.InitContainerStatuses {
			c := &pod.Status.InitContainerStatuses[i]
			if t := c.State.Terminated; t != nil && !isSidecar(pod, c.Name) && !yield(c.Name, t) {
				return
			}
		}
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			if t := c.State.Terminated; t != nil && !yield(c.Name, t) {
				return
			}
		}
	}
}

// endedBeforeDisruption reports whether a container certainly ended before its pod was disrupted; false if the pod has
// no DisruptionTarget condition. Both times have a resolution of one second. An end within the same second counts as
// caused by the disruption, in favour of the job. So does any end on a node whose clock is behind (see clockBehind),
// unless the kubelet of that node reported the disruption.
func endedBeforeDisruption(t *corev1.ContainerStateTerminated, pod *corev1.Pod) bool {
	c := disruption(pod)
	sameClock := c != nil && c.Reason == corev1.PodReasonTerminationByKubelet
	return c != nil && (sameClock || !clockBehind(pod)) && t.FinishedAt.Time.Before(c.LastTransitionTime.Time)
}

// isDisrupted reports whether another component removed or rejected a pod. A component that removes a running pod sets
// the condition DisruptionTarget. A kubelet that evicts a pod for exceeding the pod's own storage limits does not set
// this condition. It sets the reason Evicted, as does a kubelet under pressure that rejects a pod. Only the evicted pod
// has container statuses. These statuses need not show a started container, because the kubelet removes the containers
// of an evicted pod immediately.
func isDisrupted(pod *corev1.Pod) bool {
	r := pod.Status.Reason
	refused := slices.Contains(admissionReasons, r) || strings.HasPrefix(r, "OutOf") ||
		r == reasonEvicted && len(pod.Status.InitContainerStatuses) == 0 && len(pod.Status.ContainerStatuses) == 0
	return refused || disruption(pod) != nil
}

// disruption returns the pod's DisruptionTarget condition if it is true; otherwise nil.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// disruptionReason returns the reason of the pod's disruption, for example PreemptionByScheduler; empty if there is
// none.
func disruptionReason(pod *corev1.Pod) string {
	if c := disruption(pod); c != nil {
		return c.Reason
	}
	return ""
}

// finishedBeforeDeletion reports whether the pod certainly ended before the request to delete it. Both times have a
// resolution of one second. An end within the same second counts as caused by the deletion, in favour of the job. The
// same holds for any end on a node whose clock is behind (see clockBehind), and for any end of a pod whose grace period
// is 0, because the API server has then overwritten the time of the request. The grace period becomes 0 when the
// kubelet completes the deletion, and it is 0 from the start for a pod that had already ended. Seen.Succeeded covers
// such pods.
func (x *Role) finishedBeforeDeletion(pod *corev1.Pod) bool {
	_, finished := x.lifetime(pod)
	return !finished.IsZero() && !clockBehind(pod) && finished.Before(deletionAsked(pod))
}

// clockBehind reports whether a container of the pod has a start time before the creation of the pod. The clock of the
// pod's node is then certainly behind the clock of the API server. An event that the node dates before a request to
// the API server may have happened after the request.
func clockBehind(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		var started metav1.Time
		switch s := &c.State; {
		case s.Running != nil:
			started = s.Running.StartedAt
		case s.Terminated != nil:
			started = s.Terminated.StartedAt
		}
		return !started.IsZero() && started.Before(&pod.CreationTimestamp)
	})
}

// deletionAsked returns the time of the request to delete the pod; zero if there was none or the time is no longer
// known.
func deletionAsked(pod *corev1.Pod) time.Time {
	if pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	g := pod.DeletionGracePeriodSeconds
	switch {
	case g == nil:
		return pod.DeletionTimestamp.Time
	case *g == 0:
		return time.Time{}
	default:
		return pod.DeletionTimestamp.Add(-time.Duration(*g) * time.Second)
	}
}

// startedAt returns the time at which the last of the pod's regular containers started; zero if one of them has not
// started.
func startedAt(pod *corev1.Pod) time.Time {
	var latest time.Time
	for i := range pod.Status.ContainerStatuses {
		var started time.Time
		switch s := &pod.Status.ContainerStatuses[i].State; {
		case s.Running != nil:
			started = s.Running.StartedAt.Time
		case s.Terminated != nil:
			started = s.Terminated.StartedAt.Time
		}
		if started.IsZero() {
			return started
		}
		if started.After(latest) {
			latest = started
		}
	}
	return latest
}

// lifetime returns the first start and the last end of the ended containers that count (see ends); zero for a time
// that is not known.
func (x *Role) lifetime(pod *corev1.Pod) (started, finished time.Time) {
	for _, t := range x.ends(pod) {
		if s := t.StartedAt.Time; !s.IsZero() && (started.IsZero() || s.Before(started)) {
			started = s
		}
		if t.FinishedAt.After(finished) {
			finished = t.FinishedAt.Time
		}
	}
	return started, finished
}

// SucceededUndeleted reports whether a pod has succeeded and is neither disrupted nor being deleted. If a watch shows a
// pod in this state before it shows the deletion, the pod succeeded first. The end of a pod in debug mode is not a
// success.
func SucceededUndeleted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil && disruption(pod) == nil && pod.Status.Reason == "" &&
		pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
}

func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// podPhase returns the phase of a replica whose pod has not ended.
func podPhase(pod *corev1.Pod) batch.ReplicaPhase {
	switch {
	case pod.Status.Phase == corev1.PodRunning:
		return batch.ReplicaRunning
	case pod.Status.Phase == corev1.PodUnknown:
		return batch.ReplicaUnknown
	case pod.Spec.NodeName == "":
		return batch.ReplicaCreating
	default:
		return batch.ReplicaPending
	}
}

// count parses a number that the controller wrote on a pod. It returns 0 for anything else, and at most maxCount.
func count(s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return bounded(int32(n))
}
