package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestRestartLimitAppliesToEachReplica verifies that the limit applies to each replica, and that every restart counts
// once.
func TestRestartLimitAppliesToEachReplica(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("limit", jobs.Restarting(role("worker", 3, gate.Obey), batch.RestartOnFailure, 2), role("other", 1, gate.Obey)))
	s.orders("limit-worker-0", 1, 1)
	s.orders("limit-worker-1", 9)
	s.awaitStarts("limit-worker-0", 3)
	s.awaitStarts("limit-worker-1", 2)
	for _, r := range []string{"limit-worker-0", "limit-worker-1", "limit-worker-2", "limit-other-0"} {
		s.order(r, 0)
	}
	j := s.awaitPhase("limit", batch.JobSucceeded)
	s.checkRestarts(j, map[string]int{"limit-worker-0": 2, "limit-worker-1": 1, "limit-worker-2": 0, "limit-other-0": 0})
	s.awaitEvent("limit", batch.EventReplicaRestarted, "limit-worker-1 ended with exit code 9 (restart 1 of 2)")
	s.awaitEvent("limit", batch.EventReplicaRestarted, "limit-worker-0 ended with exit code 1 (restart 2 of 2)")
}

// checkRestarts compares the status and the records of the processes with the expected restarts of each replica.
func (s *space) checkRestarts(j client.Object, want map[string]int) {
	s.Helper()
	most, total := 0, 0
	for name, n := range want {
		most, total = max(most, n), total+n
		if r := jobs.Replica(j, name); int(r.RestartCount) != n {
			s.Errorf("the status has %d restarts of %s, want %d", r.RestartCount, name, n)
		}
		s.checkStarts(map[string]int{name: n + 1})
	}
	// backoffCount counts incidents. A failure before all replicas are running again belongs to the same incident,
	// unless it is the second failure of a replica.
	if got := int(jobs.StatusOf(j).BackoffCount); got < most || got > total {
		s.Errorf("backoffCount is %d, want %d to %d", got, most, total)
	}
}

// TestReplicaFailsWhenItsRestartsAreUsed verifies that a replica without remaining restarts fails its job, and that the
// status that shows the failed job also has the condition ReplicaFailure.
func TestReplicaFailsWhenItsRestartsAreUsed(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("spent", jobs.Restarting(role("worker", 2, gate.Obey), batch.RestartOnFailure, 1)))
	s.orders("spent-worker-1", 1, 4)
	j := s.awaitPhase("spent", batch.JobFailed)
	checkEnd(t, j, batch.ReasonFailureRule, "spent-worker-1", "exit code 4")
	if !jobs.IsTrue(j, batch.JobReplicaFailure) {
		t.Errorf("condition ReplicaFailure: %+v", jobs.Condition(j, batch.JobReplicaFailure))
	}
	s.fence()
	s.checkRestarts(s.job("spent"), map[string]int{"spent-worker-1": 1})
}

// TestRestartPolicyDecidesWhichExitsRestart verifies which exit codes cause a restart under each policy.
func TestRestartPolicyDecidesWhichExitsRestart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy batch.RestartPolicyType
		limit  int32
		codes  []int
		phase  batch.JobPhase
		starts int
	}{
		"OnFailure without a limit means none":       {batch.RestartOnFailure, -1, []int{1}, batch.JobFailed, 1},
		"OnFailure leaves successes alone":           {batch.RestartOnFailure, 5, []int{0}, batch.JobSucceeded, 1},
		"Never means never":                          {batch.RestartNever, 5, []int{1}, batch.JobFailed, 1},
		"Always restarts failures and successes":     {batch.RestartAlways, 2, []int{0, 1, 0}, batch.JobSucceeded, 3},
		"Always ends with what the last restart did": {batch.RestartAlways, 1, []int{0, 3}, batch.JobFailed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			s.Create(s.newJob("job", jobs.Restarting(role("worker", 1, gate.Obey), c.policy, c.limit)))
			s.orders("job-worker-0", c.codes...)
			j := s.awaitPhase("job", c.phase)
			s.checkRestarts(j, map[string]int{"job-worker-0": c.starts - 1})
		})
	}
}

// TestAlwaysWithoutLimitRestartsForever verifies that the policy Always without a limit restarts a replica after every
// end, and that a rule about another role ends the job.
func TestAlwaysWithoutLimitRestartsForever(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("always", role("chief", 1, gate.Obey), jobs.Restarting(role("server", 1, gate.Obey), batch.RestartAlways, -1))
	j.Spec.SuccessRules = []batch.FinishRule{{"chief": {}}}
	j.Spec.CleanUpPolicy = batch.CleanUpUnfinished
	s.Create(j)
	s.orders("always-server-0", 0, 1, 0)
	s.awaitStarts("always-server-0", 4)
	s.order("always-chief-0", 0)
	s.checkRestarts(s.awaitPhase("always", batch.JobSucceeded), map[string]int{"always-server-0": 3, "always-chief-0": 0})
}

// TestRestartDelayDoubles verifies the minimum delays before the restarts of a replica: none before the first,
// restartBackoff before the second, and twice as long before the third.
func TestRestartDelayDoubles(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("slow", jobs.Restarting(role("worker", 1, gate.Obey), batch.RestartOnFailure, 3)))
	s.orders("slow-worker-0", 1, 1, 1, 0)
	s.awaitPhase("slow", batch.JobSucceeded)
	pods := s.history.Attempts("slow-worker-0")
	if len(pods) != 4 {
		t.Fatalf("%d pods, want 4", len(pods))
	}
	base, err := time.ParseDuration(restartBackoff)
	if err != nil {
		t.Fatal(err)
	}
	for i, least := range []time.Duration{0, base, 2 * base} {
		ended := finishedAt(t, pods[i])
		// Both times and the delays are in whole seconds.
		if waited := pods[i+1].CreationTimestamp.Sub(ended); waited < least {
			t.Errorf("restart %d came %s after the end, want at least %s", i+1, waited, least)
		}
	}
}

func finishedAt(t *testing.T, p *corev1.Pod) time.Time {
	t.Helper()
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			return c.State.Terminated.FinishedAt.Time
		}
	}
	t.Fatalf("the end of pod %s was not observed: %+v", p.Name, p.Status)
	return time.Time{}
}

// TestFinishedJobCreatesNothing verifies that a finished job creates no pods, whatever happens to its existing pods,
// and even if debug mode is turned on.
func TestFinishedJobCreatesNothing(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("final", jobs.Restarting(role("worker", 2, gate.Obey), batch.RestartAlways, -1), role("chief", 1, gate.Obey))
	j.Spec.SuccessRules = []batch.FinishRule{{"chief": {}}}
	s.Create(j)
	s.awaitStarts("final-worker-0", 1)
	s.awaitStarts("final-worker-1", 1)
	s.order("final-chief-0", 0)
	s.awaitPhase("final", batch.JobSucceeded)
	s.order("final-worker-1", 1)
	for _, name := range []string{"final-worker-0", "final-chief-0"} {
		if err := s.Client.Delete(t.Context(), s.podNow(name)); err != nil {
			t.Fatal(err)
		}
	}
	s.pods("final", "one is left, and has ended", func(p []*corev1.Pod) bool {
		return len(p) == 1 && p[0].Status.Phase == corev1.PodFailed
	})
	s.edit("final", func(j *batch.GenericJob) {
		j.Spec.RunMode = &batch.RunMode{Debug: &batch.DebugMode{Enabled: new(true)}}
	})
	s.fence()
	var pods corev1.PodList
	if err := s.Client.List(t.Context(), &pods, client.InNamespace(s.Namespace), client.MatchingLabels{batch.LabelJobName: "final"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || s.starts("final-worker-0") != 1 || s.starts("final-worker-1") != 1 {
		t.Errorf("a finished job created pods:\n%s", s.Dump())
	}
}
