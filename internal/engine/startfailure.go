package engine

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// startFailureReasons are the reasons of a terminated container that never started: its command does not exist, cannot
// be executed or has arguments that are too long. The exit code of such a container comes from the runtime and says
// nothing about the program.
var startFailureReasons = []string{"StartError", "ContainerCannotRun"}

// maxStartFailure is the largest number of characters that are quoted from the kubelet's message.
const maxStartFailure = 400

// StartFailure returns the kubelet's message about why a container could not be started, as one line of at most
// maxStartFailure characters; empty for any other end, and for nil.
func StartFailure(t *corev1.ContainerStateTerminated) string {
	if t == nil || !slices.Contains(startFailureReasons, t.Reason) {
		return ""
	}
	text := []rune(strings.Join(strings.Fields(t.Message), " "))
	if len(text) > maxStartFailure {
		return string(text[:maxStartFailure-1]) + "…"
	}
	return string(text)
}

// startFailure returns why a container of the replica could not be started; empty for any other end.
func (r *replica) startFailure() string {
	if r.pod == nil {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{r.pod.Status.InitContainerStatuses, r.pod.Status.ContainerStatuses} {
		for i := range statuses {
			if why := StartFailure(statuses[i].State.Terminated); why != "" {
				return why
			}
		}
	}
	return ""
}

// endText returns how a replica ended, as text to follow "has failed": the exit code, or why its command could not be
// started.
func (r *replica) endText() string { return endText(r.startFailure(), r.exit) }

func endText(startFailure string, exitCode *int32) string {
	if startFailure != "" {
		return ": its command cannot be started: " + startFailure
	}
	return exitText(exitCode)
}
