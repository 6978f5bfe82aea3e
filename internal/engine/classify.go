package engine

import (
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

// classify says whether and how a pod has ended. A pod that is being deleted has ended only if it finished by itself
// before it was asked to.
func classify(pod *corev1.Pod) ending {
	end := notEnded
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		end = succeeded
	case corev1.PodFailed:
		end = failed
		if isDisrupted(pod) {
			return disrupted
		}
	}
	if pod.DeletionTimestamp == nil {
		return end
	}
	if end != notEnded && finishedBeforeDeletion(pod) {
		return end
	}
	return disrupted
}

// isDisrupted tells whether a failed pod was taken away, or turned away, by others. Whoever takes a running pod away sets the
// condition DisruptionTarget. A kubelet that evicts a pod for its own storage limits does not.
func isDisrupted(pod *corev1.Pod) bool {
	r := pod.Status.Reason
	refused := slices.Contains(admissionReasons, r) || strings.HasPrefix(r, "OutOf") || r == reasonEvicted && exitCode(pod) == nil
	return refused || disruption(pod) != nil
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
// one second; the same second counts as caused by the deletion, in favour of the job. So does an end of which nobody can tell:
// with the kubelet's last word, which leaves no grace period, the API server overwrites the time that was asked for.
func finishedBeforeDeletion(pod *corev1.Pod) bool {
	asked := pod.DeletionTimestamp.Time
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		if *g == 0 {
			return false
		}
		asked = asked.Add(-time.Duration(*g) * time.Second)
	}
	_, finished := lifetime(pod)
	return !finished.IsZero() && finished.Before(asked)
}

// lifetime is the time from the first start to the last end of the pod's containers; zero where unknown.
func lifetime(pod *corev1.Pod) (started, finished time.Time) {
	for _, cs := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range cs {
			t := cs[i].State.Terminated
			if t == nil {
				continue
			}
			if s := t.StartedAt.Time; !s.IsZero() && (started.IsZero() || s.Before(started)) {
				started = s
			}
			if t.FinishedAt.After(finished) {
				finished = t.FinishedAt.Time
			}
		}
	}
	return started, finished
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
