package engine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestMissingCommandIsReported verifies that the events and conditions about a restart, a failure and unsatisfiable
// rules show the kubelet's message about a missing command in place of the exit code, cut to a bounded length. The
// message of a program that has failed is not shown as the kubelet's.
func TestMissingCommandIsReported(t *testing.T) {
	const words = `exec: "pyhton": executable file not found in $PATH`
	cannotStart := func(p *play, message string) *play {
		p.exit(0, 128)
		end := p.pod(0).Status.ContainerStatuses[0].State.Terminated
		end.Reason, end.Message = "StartError", message
		return p.pass()
	}
	demand := func(t *testing.T, what, text string) {
		t.Helper()
		if !strings.Contains(text, "job-worker-0") || !strings.Contains(text, words) || strings.Contains(text, "exit code 128") {
			t.Errorf("%s: %s", what, text)
		}
	}
	message := func(p *play, c batch.JobConditionType) string { return condition(p.stat, c).Message }
	eventMessage := func(p *play, reason batch.Reason) string {
		for _, e := range p.plan.Events {
			if e.Reason == reason {
				return e.Message
			}
		}
		return ""
	}

	p := cannotStart(newPlay(t, 1, 1).pass(), words+"\n")
	demand(t, "the event of a restart", eventMessage(p, batch.EventReplicaRestarted))
	p = cannotStart(p.pass(), words)
	demand(t, "the end without rules", message(p, batch.JobFailedCondition))
	demand(t, "ReplicaFailure", message(p, batch.JobReplicaFailure))
	demand(t, "the event of the failure", eventMessage(p, batch.ReasonReplicaFailed))

	p = newPlay(t, 2, 0)
	p.job.Failure = []Rule{{Text: `{"worker":[1]}`, Members: []Member{{0, 1}}}}
	p.job.Success = []Rule{{Text: `{"worker":[0]}`, Members: []Member{{0, 0}}}}
	p = cannotStart(p.pass(), words)
	demand(t, "the end of a job of which no rule can hold", message(p, batch.JobFailedCondition))

	p = cannotStart(newTraining(t, 2, 0).pass(), words)
	demand(t, "the end of a job without retries", message(p, batch.JobFailedCondition))

	p = cannotStart(newPlay(t, 1, 0).pass(), words+strings.Repeat(" x", 4000))
	if n := len(message(p, batch.JobFailedCondition)); n > 1000 {
		t.Errorf("a message of %d bytes", n)
	}
	if got := StartFailure(&corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "traceback"}); got != "" {
		t.Errorf("a program's message is reported as that of the kubelet: %q", got)
	}
}
