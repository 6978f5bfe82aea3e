package e2e

import (
	"flag"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

var outage = flag.Duration("outage", 10*time.Second, "how long the API server is away in TestJobsContinueAfterAPIServerOutage")

// TestOperatorCatchesUpAfterDowntime verifies that an operator that starts handles everything that happened without it.
// A failure rule wins over a success rule that became true at the same time, restarts are counted, a time to live that
// has expired takes effect, and an invalid job that passed admission fails.
func TestOperatorCatchesUpAfterDowntime(t *testing.T) {
	s := lend(t, fragile)
	both := s.newJob("both", role("worker", 1, gate.Obey), role("ps", 1, gate.Obey))
	both.Spec.SuccessRules = []batch.FinishRule{{"worker": {}}}
	both.Spec.FailureRules = []batch.FinishRule{{"ps": {}}}
	s.Create(both)
	s.Create(s.newJob("again", jobs.Restarting(role("worker", 1, gate.Obey), batch.RestartOnFailure, 1)))
	s.Create(s.newJob("brief", role("worker", 1, "exit 0")))
	s.awaitPhase("brief", batch.JobSucceeded)
	s.awaitPhase("both", batch.JobRunning)
	s.awaitPhase("again", batch.JobRunning)

	if err := s.Env.StopComponent(local.Operator); err != nil {
		t.Fatal(err)
	}
	s.order("both-worker-0", 0)
	s.order("both-ps-0", 1)
	s.order("again-worker-0", 1)
	s.pods("both", "ended", func(p []*corev1.Pod) bool {
		return len(p) == 2 && p[0].Status.Phase == corev1.PodFailed && p[1].Status.Phase == corev1.PodSucceeded
	})
	s.pod("again-worker-0", "ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	s.Create(s.newJob("bad", role("worker", 2, "echo $(service.worker[7].host)")))
	s.edit("brief", func(j *batch.GenericJob) { j.Spec.TTLSecondsAfterFinished = new(int32(1)) })
	<-time.After(time.Until(s.job("brief").Status.CompletionTime.Add(2 * time.Second)))
	if err := s.Env.StartComponent(local.Operator); err != nil {
		t.Fatal(err)
	}
	checkEnd(t, s.awaitPhase("both", batch.JobFailed), batch.ReasonFailureRule, `{"ps":[]}`)
	namespace.AwaitList(s.Test, "the job brief no longer exists", &batch.GenericJobList{}, func(j []*batch.GenericJob) bool { return len(j) == 0 }, watch.Named("brief"))
	checkEnd(t, s.awaitPhase("bad", batch.JobFailed), batch.ReasonInvalidSpec, "$(service.worker[7].host)")
	s.awaitEvent("bad", batch.ReasonInvalidSpec, "$(service.worker[7].host)")
	s.checkNothingCreated("bad")
	s.awaitStarts("again-worker-0", 2)
	s.order("again-worker-0", 0)
	s.checkRestarts(s.awaitPhase("again", batch.JobSucceeded), map[string]int{"again-worker-0": 1})
}

// TestJobsContinueAfterAPIServerOutage verifies that the processes of jobs continue and finish without an API server,
// and that the jobs continue with the usual counts when the API server is available again.
func TestJobsContinueAfterAPIServerOutage(t *testing.T) {
	requireFaults(t)
	s := lend(t, fragile)
	s.Create(s.newJob("stays", jobs.Restarting(role("worker", 3, gate.Obey), batch.RestartOnFailure, 2)))
	s.orders("stays-worker-0", 1)
	s.awaitStarts("stays-worker-0", 2)
	s.awaitPhase("stays", batch.JobRunning)
	s.Create(s.newJob("starts", role("worker", 2, gate.Obey)))

	if err := s.Env.StopComponent(local.APIServer); err != nil {
		t.Fatal(err)
	}
	back := time.After(*outage)
	s.order("stays-worker-0", 1)
	s.order("stays-worker-1", 1)
	<-back
	if err := s.Env.StartComponent(local.APIServer); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.awaitStarts("stays-worker-0", 3)
	s.awaitStarts("stays-worker-1", 2)
	t.Logf("%s after the API server was started both replicas had been restarted", time.Since(began).Round(10*time.Millisecond))
	for _, name := range []string{"stays-worker-0", "stays-worker-1", "stays-worker-2", "starts-worker-0", "starts-worker-1"} {
		s.order(name, 0)
	}
	s.checkRestarts(s.awaitPhase("stays", batch.JobSucceeded), map[string]int{"stays-worker-0": 2, "stays-worker-1": 1, "stays-worker-2": 0})
	s.checkRestarts(s.awaitPhase("starts", batch.JobSucceeded), map[string]int{"starts-worker-0": 0, "starts-worker-1": 0})
	s.AwaitReady(t)
}
