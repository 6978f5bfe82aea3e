package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestFinishRulesEndTheJob verifies which finish rules end a job and with which result. Replicas exit one after
// another, each after the job's status shows the previous exit.
func TestFinishRulesEndTheJob(t *testing.T) {
	t.Parallel()
	type end struct {
		replica string
		code    int
	}
	number, text := intstr.FromInt32, intstr.FromString
	rule := func(role string, ranks ...intstr.IntOrString) batch.FinishRule {
		return batch.FinishRule{role: append(batch.RankList{}, ranks...)}
	}
	for name, c := range map[string]struct {
		success, failure []batch.FinishRule
		limit            int32
		ends             []end
		phase            batch.JobPhase
		reason           batch.Reason
		message          []string
	}{
		"without rules every replica must succeed": {
			ends:  []end{{"worker-0", 0}, {"worker-1", 0}, {"worker-2", 0}, {"ps-0", 0}},
			phase: batch.JobSucceeded, reason: batch.ReasonSuccessRule, message: []string{"All replicas have succeeded"},
		},
		"without rules one failure fails the job": {
			ends:  []end{{"worker-0", 0}, {"worker-2", 7}},
			phase: batch.JobFailed, reason: batch.ReasonFailureRule, message: []string{"worker-2", "exit code 7"},
		},
		"a success rule holds when all its replicas succeeded": {
			success: []batch.FinishRule{rule("worker", number(0), text("2"))},
			ends:    []end{{"worker-2", 0}, {"worker-0", 0}},
			phase:   batch.JobSucceeded, reason: batch.ReasonSuccessRule, message: []string{`{"worker":[0,"2"]}`},
		},
		"a range of ranks": {
			success: []batch.FinishRule{rule("worker", text("0-1"))},
			ends:    []end{{"worker-1", 0}, {"worker-0", 0}},
			phase:   batch.JobSucceeded, reason: batch.ReasonSuccessRule, message: []string{`{"worker":["0-1"]}`},
		},
		"an empty list stands for every replica of the role": {
			success: []batch.FinishRule{rule("worker")},
			ends:    []end{{"worker-0", 0}, {"worker-1", 0}, {"worker-2", 0}},
			phase:   batch.JobSucceeded, reason: batch.ReasonSuccessRule, message: []string{`{"worker":[]}`},
		},
		"any success rule suffices, over several roles": {
			success: []batch.FinishRule{rule("worker"), {"ps": {number(0)}, "worker": {number(1)}}},
			ends:    []end{{"ps-0", 0}, {"worker-1", 0}},
			phase:   batch.JobSucceeded, reason: batch.ReasonSuccessRule, message: []string{`{"ps":[0],"worker":[1]}`},
		},
		"a failure rule holds when all its replicas failed": {
			success: []batch.FinishRule{rule("ps")},
			failure: []batch.FinishRule{rule("worker", number(0), number(1))},
			ends:    []end{{"worker-2", 1}, {"worker-0", 1}, {"worker-1", 2}},
			phase:   batch.JobFailed, reason: batch.ReasonFailureRule, message: []string{`{"worker":[0,1]}`},
		},
		"any failure rule suffices": {
			success: []batch.FinishRule{rule("worker", number(2))},
			failure: []batch.FinishRule{rule("worker", number(0)), rule("ps")},
			ends:    []end{{"worker-1", 1}, {"ps-0", 1}},
			phase:   batch.JobFailed, reason: batch.ReasonFailureRule, message: []string{`{"ps":[]}`},
		},
		"a failure counts when no restart is left": {
			success: []batch.FinishRule{rule("worker", number(1))},
			failure: []batch.FinishRule{rule("worker", number(0))},
			limit:   1,
			ends:    []end{{"worker-0", 1}, {"worker-0", 1}},
			phase:   batch.JobFailed, reason: batch.ReasonFailureRule, message: []string{`{"worker":[0]}`},
		},
		"a job that cannot succeed any more fails": {
			success: []batch.FinishRule{rule("worker", number(0)), rule("worker", number(1), number(2))},
			failure: []batch.FinishRule{rule("ps")},
			ends:    []end{{"worker-1", 1}, {"worker-0", 5}},
			phase:   batch.JobFailed, reason: batch.ReasonSuccessRulesUnsatisfiable, message: []string{`{"worker":[1,2]}`, "worker-1", "exit code 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			j := s.newJob("job", jobs.Restarting(role("worker", 3, gate.Obey), batch.RestartOnFailure, c.limit), role("ps", 1, gate.Obey))
			j.Spec.SuccessRules, j.Spec.FailureRules = c.success, c.failure
			s.Create(j)
			starts := map[string]int{}
			for i, e := range c.ends {
				name := "job-" + e.replica
				starts[name]++
				s.awaitStarts(name, starts[name])
				s.order(name, e.code)
				s.awaitJob("job", "the status shows the end of "+name, func(j *batch.GenericJob) bool {
					r := jobs.Replica(j, name)
					return r.Phase == batch.ReplicaSucceeded || r.Phase == batch.ReplicaFailed || int(r.RestartCount) >= starts[name]
				})
				if last := i == len(c.ends)-1; !last && jobs.Over(s.job("job")) {
					t.Fatalf("the job ended after %s\n%s", name, s.Dump())
				}
			}
			checkEnd(t, s.awaitPhase("job", c.phase), c.reason, c.message...)
		})
	}
}

// checkEnd verifies the reason and parts of the message of the terminal condition of a job.
func checkEnd(t testing.TB, j client.Object, reason batch.Reason, parts ...string) {
	t.Helper()
	c := jobs.Condition(j, batch.JobCompleted)
	if jobs.StatusOf(j).Phase == batch.JobFailed {
		c = jobs.Condition(j, batch.JobFailedCondition)
	}
	if c.Status != "True" || c.Reason != reason {
		t.Errorf("condition %s is %s for reason %s, want True for %s", c.Type, c.Status, c.Reason, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			t.Errorf("the message of condition %s is %q, want %q in it", c.Type, c.Message, part)
		}
	}
}
