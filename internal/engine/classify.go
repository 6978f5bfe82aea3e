package engine

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// ending says how a pod ended.
type ending int

const (
	notEnded ending = iota
	succeeded
	failed
	// disrupted pods were taken away through no doing of their own. They are replaced without charge.
	disrupted
)

// reasonEvicted is what a kubelet writes on a pod that it evicts, for pressure on the node or for a limit that the pod broke.
const reasonEvicted = "Evicted"

// admissionReasons are the values of pod.status.reason with which a kubelet turns a pod away for what its node lacks at the
// moment, when the pod arrives or when the kubelet itself has restarted. Another node, or the same one later, may take it.
// Reasons for which no node ever takes the pod, such as PodOSNotSupported or SysctlForbidden, are failures of its own.
var admissionReasons = []string{
	"NodeAffinity", "NodeName", "NodePorts", "TaintToleration", "NodeShutdown", "InvalidNodeInfo", "UnexpectedAdmissionError",
	"UnknownReason", "UnexpectedPredicateFailureType", "TopologyAffinityError", "VolumeAttachmentLimitExceeded",
}

// classify says whether and how the replica of a pod has ended. With a pod that is being deleted it has ended only if it
// finished by itself before that was asked for.
func (x *Role) classify(pod *corev1.Pod) ending {
	end := x.lastState(pod)
	if pod.DeletionTimestamp == nil || end != notEnded && x.finishedBeforeDeletion(pod) {
		return end
	}
	return disrupted
}

// lastState says whether and how the replica of a pod has ended, whether or not the pod is being deleted.
func (x *Role) lastState(pod *corev1.Pod) ending {
	main := x.mainEnd(pod)
	switch {
	// A kubelet may note a disruption only when the containers that it killed have ended, so a failure says nothing here.
	case main != nil && isDisrupted(pod) && (main.ExitCode != 0 || !endedBeforeDisruption(main, pod)):
		return disrupted
	case main != nil && main.ExitCode == 0 && (pod.Status.Reason != reasonEvicted || disruption(pod) != nil):
		return succeeded
	case main != nil: // or with 0, at the word of the kubelet that evicted it for a limit of its own
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

// mainEnd is how the main container ended, where its end decides; nil where it does not, or the container has not ended.
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

// ends yields how containers ended, of those that the end of the replica depends on: the main one if it decides and has
// ended, or else all but native sidecars. The kubelet stops those when the others have ended, so their ends say nothing.
func (x *Role) ends(pod *corev1.Pod) iter.Seq[*corev1.ContainerStateTerminated] {
	return func(yield func(*corev1.ContainerStateTerminated) bool) {
		if t := x.mainEnd(pod); t != nil {
			yield(t)
			return
		}
		for i := range pod.Status.InitContainerStatuses {
			c := &pod.Status.InitContainerStatuses[i]
			if t := c.State.Terminated; t != nil && !isSidecar(pod, c.Name) && !yield(t) {
				return
			}
		}
		for i := range pod.Status.ContainerStatuses {
			if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && !yield(t) {
				return
			}
		}
	}
}

// endedBeforeDisruption tells whether a container ended before anybody took its pod away. Both times have a resolution of one
// second; the same second counts as caused by the disruption, in favour of the job.
func endedBeforeDisruption(t *corev1.ContainerStateTerminated, pod *corev1.Pod) bool {
	c := disruption(pod)
	return c != nil && t.FinishedAt.Time.Before(c.LastTransitionTime.Time)
}

// isDisrupted tells whether a failed pod was taken away, or turned away, by others. Whoever takes a running pod away sets the
// condition DisruptionTarget. A kubelet that evicts a pod for its own storage limits does not; one under pressure that turns a
// pod away gives the same reason.
func isDisrupted(pod *corev1.Pod) bool {
	r := pod.Status.Reason
	refused := slices.Contains(admissionReasons, r) || strings.HasPrefix(r, "OutOf") || r == reasonEvicted && !anyStarted(pod)
	return refused || disruption(pod) != nil
}

// anyStarted tells whether a container of the pod has started. It need not be shown to have ended when its pod has: a slow
// kubelet writes that later.
func anyStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
}

// disruption is the condition by which whoever takes a pod away says why; nil where nobody has.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// disruptionReason is for example PreemptionByScheduler; empty where nobody has said why.
func disruptionReason(pod *corev1.Pod) string {
	if c := disruption(pod); c != nil {
		return c.Reason
	}
	return ""
}

// finishedBeforeDeletion compares the pod's end with the moment when its deletion was asked for. Both have a resolution of
// one second; the same second counts as caused by the deletion, in favour of the job. So does an end of which the pod cannot tell:
// with the kubelet's last word, which leaves no grace period, the API server overwrites the time that was asked for, and a pod
// that had ended never has any. Seen.Succeeded tells of these.
func (x *Role) finishedBeforeDeletion(pod *corev1.Pod) bool {
	_, finished := x.lifetime(pod)
	return !finished.IsZero() && finished.Before(deletionAsked(pod))
}

// deletionAsked is when the pod's deletion was asked for; zero where it was not, or where nobody can tell any more.
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

// startedAt is when the last of the pod's containers started; zero where one has not.
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

// lifetime is the time from the first start to the last end of the containers that count; zero where unknown.
func (x *Role) lifetime(pod *corev1.Pod) (started, finished time.Time) {
	for t := range x.ends(pod) {
		if s := t.StartedAt.Time; !s.IsZero() && (started.IsZero() || s.Before(started)) {
			started = s
		}
		if t.FinishedAt.After(finished) {
			finished = t.FinishedAt.Time
		}
	}
	return started, finished
}

// SucceededUndeleted tells whether a pod has succeeded while nobody was taking it away. A watch that shows a pod so before it shows
// its deletion has shown that the end came first.
func SucceededUndeleted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil && disruption(pod) == nil && pod.Status.Reason == "" &&
		pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
}

func isSidecar(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// podPhase is the phase of a replica whose pod has not ended.
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

// count reads a number that the controller wrote on a pod. What somebody else put there counts as 0.
func count(s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return bounded(int32(n))
}
