package engine

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// startFailureReasons are the reasons of a container that ended without having started: its command does not exist, cannot
// be executed or has arguments that are too long. Its exit code is the runtime's and tells nobody anything.
var startFailureReasons = []string{"StartError", "ContainerCannotRun"}

// maxStartFailure is the largest number of characters of the kubelet's words that a message quotes.
const maxStartFailure = 400

// StartFailure is why a container could not be started, in the words of the kubelet; empty for any other end.
func StartFailure(t *corev1.ContainerStateTerminated) string {
	if t == nil || !slices.Contains(startFailureReasons, t.Reason) {
		return ""
	}
	words := []rune(strings.Join(strings.Fields(t.Message), " "))
	if len(words) > maxStartFailure {
		return string(words[:maxStartFailure-1]) + "…"
	}
	return string(words)
}

// startFailure is why a container of the replica could not be started; empty for any other end.
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

// endText says how a replica ended, behind "has failed": with which exit code, or why its command could not be started.
func (r *replica) endText() string { return endText(r.startFailure(), r.exit) }

func endText(startFailure string, exitCode *int32) string {
	if startFailure != "" {
		return ": its command cannot be started: " + startFailure
	}
	return exitText(exitCode)
}
