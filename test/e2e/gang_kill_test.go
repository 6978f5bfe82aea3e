package e2e

import (
	"flag"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/watch"
)

var gangKills = flag.Int("gang-kills", 6, "how often TestGangsSurviveKillsOfOperatorAndScheduler kills the operator or the scheduler")

// together is the beginning of a script that waits until the replicas of job %s have started %d times in all, so that a
// gang that starts only in part never finishes.
const together = nth + `until [ $(cat /gate/%s-w-*.starts | wc -l) -ge %d ]; do sleep 0.05; done; `

// TestGangsSurviveKillsOfOperatorAndScheduler kills the operator and the scheduler repeatedly while gangs start that do
// not all fit into the quota. It verifies that each job ends with the same result and counts as without kills, that no
// gang starts in part, and that the quota is never exceeded.
func TestGangsSurviveKillsOfOperatorAndScheduler(t *testing.T) {
	requireFaults(t)
	s := lend(t, fragile)
	q, short := s.queue("q", "50m"), s.queue("short", "", func(q *scheduling.QueueSpec) { q.MaxDuration = "2s" })
	s.watchQuota(50)
	s.playGangs(q, short, 0)
	want := s.outcome(0)
	t.Logf("without kills:\n%s", want)

	k := newKiller(s, local.Operator, local.Scheduler)
	round := 0
	for k.count() < *gangKills && !t.Failed() {
		round++
		s.playGangs(q, short, round)
		if got := s.outcome(round); got != want {
			t.Errorf("round %d ended differently:\n%swant\n%s", round, got, want)
		}
	}
	k.stop()
	t.Log(k.summary(round))
}

// playGangs runs jobs of one, three and four replicas that do not all fit into a quota of 50m together, and a job whose
// queue allows a maximum duration of 2 s, after which the operator must not recreate its pods.
func (s *space) playGangs(queue, short string, round int) {
	s.Helper()
	name := func(sort string) string { return fmt.Sprintf("%s-%d", sort, round) }
	script := func(sort string, n int, then string) string { return fmt.Sprintf(together, name(sort), n) + then }
	// Rank 0 fails once, after all have started.
	restarts := s.gang(name("restarts"), queue, jobs.Restarting(requesting(role("w", 3, script("restarts", 3, `[ $HOSTNAME != `+name("restarts")+`-w-0 ] || [ $n -gt 1 ]`)), "10m"), batch.RestartOnFailure, 2))
	all := []*batch.GenericJob{
		restarts,
		s.gang(name("succeeds"), queue, requesting(role("w", 4, script("succeeds", 4, "exit 0")), "10m")),
		s.gang(name("single"), queue, requesting(role("w", 1, nth+"exit 0"), "40m")),
	}
	for _, j := range all {
		s.Create(j)
	}
	s.Create(s.gang(name("ages"), short, jobs.Restarting(role("w", 2, gate.Idle), batch.RestartAlways, -1)))
	for _, j := range all {
		s.awaitPhase(j.Name, batch.JobSucceeded)
	}
	s.awaitPhase(name("ages"), batch.JobFailed)
	s.pods(name("ages"), "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	for rank := range 2 {
		if pods := s.history.Attempts(fmt.Sprintf("%s-w-%d", name("ages"), rank)); len(pods) > 1 {
			s.Errorf("%d pods were made for rank %d of a job that its queue ends", len(pods), rank)
		}
	}
}

// watchQuota verifies, at each change of a pod of the space until the test ends, that the unfinished pods with a node
// request no more than the quota, in thousandths of a CPU.
func (s *space) watchQuota(quota int64) {
	s.Watch(&corev1.PodList{}, func(objects []client.Object) bool {
		sum := int64(0)
		for _, p := range watch.Typed[*corev1.Pod](objects) {
			if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				sum += p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		if sum > quota {
			s.Errorf("%dm are used, the quota is %dm", sum, quota)
		}
		return false
	})
}

// TestRestartedSchedulerDoesNotEvictRunningReplicas verifies that a restarted scheduler does not mistake a gang that
// lacks a replica for a gang that never started completely, whose running pods it would evict.
func TestRestartedSchedulerDoesNotEvictRunningReplicas(t *testing.T) {
	s := lend(t, fragile)
	q := s.queue("q", "100m")
	s.Create(s.gang("runs", q, jobs.Restarting(requesting(role("w", 2, gate.Obey), "40m"), batch.RestartOnFailure, 1)))
	s.awaitPhase("runs", batch.JobRunning)
	s.editQueue(q, quotaOf("50m"))
	s.order("runs-w-0", 1)
	s.awaitReason("runs", batch.ReasonUnschedulable, "40m cpu needed, 10m of 50m left")
	if err := s.Env.Kill(local.Scheduler); err != nil {
		t.Fatal(err)
	}
	s.AwaitReady(t)
	// The scheduler checks such gangs once a second. Each job that starts here shows that the scheduler has completed a
	// round.
	for i := range 3 {
		name := fmt.Sprintf("meanwhile-%d", i)
		s.Create(s.gang(name, q, requesting(role("w", 1, "sleep 1"), "1m")))
		s.awaitPhase(name, batch.JobSucceeded)
	}
	if p := s.podNow("runs-w-1"); p.DeletionTimestamp != nil {
		t.Errorf("the running replica was evicted: %+v", p.Status.Conditions)
	}
	s.checkStarts(map[string]int{"runs-w-1": 1})
	s.editQueue(q, quotaOf("100m"))
	s.awaitStarts("runs-w-0", 2)
	s.finish("runs", "w", 2)
}
