package board

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// Refusal is the reason why the objects of a TensorBoard could not be created or updated.
type Refusal struct {
	// Reason is one of the reasons of the condition Ready.
	Reason, Message string
}

// Seen is the observed state of a TensorBoard. Deployment and Pod are nil if there is none.
type Seen struct {
	Now time.Time
	// Refusal is nil if no object was refused.
	Refusal    *Refusal
	Deployment *appsv1.Deployment
	Pod        *corev1.Pod
	// Activity is the pod's report about its requests. It is nil if the pod was not probed or if the probe failed. In
	// the latter case, ProbeError is the reason.
	Activity   *Activity
	ProbeError error
}

// Next is the result of Observe.
type Next struct {
	Status tensorboard.TensorBoardStatus
	// Suspend is true if the TensorBoard must be suspended, because it has been idle for Idleness.SuspendAfter.
	Suspend bool
	// ProbeAfter is the time until the next probe of the pod. Zero means that no probe is due.
	ProbeAfter time.Duration
}

// Observe computes the next status of a TensorBoard, whether to suspend it, and when to probe its pod again.
func Observe(tb *tensorboard.TensorBoard, seen Seen, idle Idleness) Next {
	next := Next{Status: tensorboard.TensorBoardStatus{URL: URL(tb), ObservedGeneration: tb.Generation}}
	if p := seen.Pod; p != nil && !Suspended(tb) {
		next.Status.Pod = &tensorboard.PodStatus{Reference: tensorboard.PodReference{Name: p.Name, UID: p.UID}, Phase: p.Status.Phase}
	}
	phase, ready := phaseAndReady(tb, seen)
	next.Status.Phase = phase
	next.set(tb, ready, seen.Now)
	next.idleness(tb, seen, idle)
	return next
}

// condition returns the condition of a type; nil if there is none.
func condition(s *tensorboard.TensorBoardStatus, t tensorboard.ConditionType) *tensorboard.Condition {
	i := slices.IndexFunc(s.Conditions, func(c tensorboard.Condition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &s.Conditions[i]
}

// ReadyCondition returns a TensorBoard's condition Ready, or an empty one if the TensorBoard has no status yet.
func ReadyCondition(tb *tensorboard.TensorBoard) tensorboard.Condition {
	if c := condition(&tb.Status, tensorboard.Ready); c != nil {
		return *c
	}
	return tensorboard.Condition{}
}

// set adds a condition to the status. The condition keeps its transition time if its status is unchanged.
func (n *Next) set(tb *tensorboard.TensorBoard, c tensorboard.Condition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	if old := condition(&tb.Status, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	n.Status.Conditions = append(n.Status.Conditions, c)
}

// Ready reports whether a pod is ready and not being deleted. A nil pod is not ready.
func Ready(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Choose returns the pod that represents a TensorBoard: the newest ready pod, or else the newest pod. It ignores pods
// that are being deleted, and returns nil if there are no other pods.
func Choose(pods []corev1.Pod) *corev1.Pod {
	live := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(live) == 0 {
		return nil
	}
	rank := func(p *corev1.Pod) int {
		if Ready(p) {
			return 0
		}
		return 1
	}
	slices.SortFunc(live, func(a, b corev1.Pod) int {
		return cmp.Or(rank(&a)-rank(&b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return &live[0]
}

// phaseAndReady computes the phase and the condition Ready.
func phaseAndReady(tb *tensorboard.TensorBoard, seen Seen) (tensorboard.Phase, tensorboard.Condition) {
	no := func(reason, message string) tensorboard.Condition {
		return tensorboard.Condition{Type: tensorboard.Ready, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if r := seen.Refusal; r != nil {
		return tensorboard.Failed, no(r.Reason, r.Message)
	}
	if Suspended(tb) {
		return tensorboard.Suspended, no(tensorboard.ReasonSuspended, "spec.suspend is set: set it to false to resume")
	}
	if Ready(seen.Pod) {
		return tensorboard.Running, tensorboard.Condition{Type: tensorboard.Ready, Status: metav1.ConditionTrue,
			Reason: tensorboard.ReasonRunning, Message: "It answers requests."}
	}
	if reason, message := startProblem(seen); reason != "" {
		if reason == tensorboard.ReasonUnschedulable || reason == tensorboard.ReasonNotStarted {
			return tensorboard.Pending, no(reason, message)
		}
		return tensorboard.Failed, no(reason, message)
	}
	return tensorboard.Pending, no(tensorboard.ReasonStarting, "It is being started.")
}

// startProblem returns the problem that keeps a TensorBoard from running, as the reason and message of the condition
// Ready; empty if there is none.
func startProblem(seen Seen) (reason, message string) {
	if seen.Pod == nil {
		if seen.Deployment == nil {
			return "", ""
		}
		for _, c := range seen.Deployment.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				return tensorboard.ReasonCreateRefused, c.Message
			}
		}
		return "", ""
	}
	for _, c := range seen.Pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return tensorboard.ReasonUnschedulable, c.Message
		}
	}
	for _, list := range [][]corev1.ContainerStatus{seen.Pod.Status.InitContainerStatuses, seen.Pod.Status.ContainerStatuses} {
		for i := range list {
			if reason, message := containerProblem(&list[i]); reason != "" {
				return reason, message
			}
		}
	}
	return "", ""
}

// containerProblem returns the problem that keeps a container from running, as the reason and message of the condition
// Ready; empty if there is none.
func containerProblem(c *corev1.ContainerStatus) (reason, message string) {
	ended := c.State.Terminated
	if ended == nil && c.RestartCount > 0 {
		ended = c.LastTerminationState.Terminated
	}
	wait := c.State.Waiting
	switch {
	case ended != nil && (ended.ExitCode != 0 || c.State.Terminated == nil):
		text := fmt.Sprintf("container %s ended with exit code %d", c.Name, ended.ExitCode)
		if m := strings.TrimSpace(ended.Message); m != "" {
			text += ": " + shorten(m)
		}
		return tensorboard.ReasonFailing, text
	case wait != nil && wait.Reason != "" && wait.Reason != "ContainerCreating" && wait.Reason != "PodInitializing":
		return tensorboard.ReasonNotStarted, fmt.Sprintf("container %s: %s: %s", c.Name, wait.Reason, shorten(wait.Message))
	}
	return "", ""
}

// shorten returns a text, or only its last 500 bytes if it is longer. Programs print their error last.
func shorten(s string) string {
	const limit = 500
	if len(s) <= limit {
		return s
	}
	return "… " + strings.ToValidUTF8(s[len(s)-limit:], "")
}

// Wrong reports whether a condition Ready describes a problem: its reason is not Running, Starting or Suspended.
func Wrong(c tensorboard.Condition) bool {
	switch c.Reason {
	case tensorboard.ReasonRunning, tensorboard.ReasonStarting, tensorboard.ReasonSuspended:
		return false
	}
	return true
}
