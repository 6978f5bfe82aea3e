package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestElasticJobGrowsAsItsQueueHasRoom verifies that an elastic job, once its minimum fits, runs as many further
// replicas as its queue has room for, reports why the others wait, and releases room when it is scaled down. The
// minimum of its group does not depend on its size.
func TestElasticJobGrowsAsItsQueueHasRoom(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "30m")
	j := s.newElastic("grows", 2, 5, 4, requesting(role("node", 1, gate.Obey), "10m"))
	j.Spec.Scheduler = inQueue(q)
	s.Create(j)
	awaitPhase(s, j, batch.JobRunning)
	s.awaitRunning(j, 3)
	awaitStatus(s, j, "the status has the reason why the last replica waits", func(now *batch.JobStatus) bool {
		c := jobs.Condition(read(s, j), batch.JobRunningCondition)
		return c.Message == "3 replicas run. 1 more is awaited. Pod "+s.waiting(j)+": the quota of queue "+q+" does not allow it: 10m cpu needed, 0 of 30m left"
	})
	s.checkOutput([]string{"describe", "grows"}, "Why: 3 replicas run. 1 more is awaited.", "Place: 1 of 1 that wait")
	s.checkOutput([]string{"queue", "describe", q}, "10m cpu needed, 0 of 30m left")
	s.checkGroup(j, q, 2)

	s.editQueue(q, quotaOf("40m"))
	s.awaitRunning(j, 4)
	before := s.uidsOf(j)
	s.scale(j, 5)
	awaitStatus(s, j, "five wanted", func(now *batch.JobStatus) bool { return now.Replicas == 5 && now.Aggregate.Creating == 1 })
	s.editQueue(q, quotaOf("50m"))
	s.awaitSize(j, map[string]int{"node": 5})
	s.checkKept(before, s.uidsOf(j))
	s.checkGroup(j, q, 2)

	s.Create(s.gang("next", q, requesting(role("w", 1, gate.Obey), "20m")))
	s.awaitWaits("next", scheduling.ReasonQuotaExceeded, "20m cpu needed, 0 of 50m left")
	s.scale(j, 3)
	s.awaitPhase("next", batch.JobRunning)
	s.awaitSize(j, map[string]int{"node": 3})
	s.checkGroup(j, q, 2)
	s.finish("next", "w", 1)
	for rank := range 3 {
		s.order(fmt.Sprintf("grows-node-%d", rank), 0)
	}
	if j = awaitPhase(s, j, batch.JobSucceeded); j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts were charged", j.Status.BackoffCount)
	}
}

// TestElasticJobWaitsForItsMinimum verifies that an elastic job whose minimum does not fit runs no replica, whatever
// size it is scaled to, and that it starts when the quota is raised.
func TestElasticJobWaitsForItsMinimum(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "15m")
	j := s.newElastic("waits", 2, 5, 2, requesting(role("node", 1, gate.Obey), "10m"))
	j.Spec.Scheduler = inQueue(q)
	s.Create(j)
	s.scheduled("waits", scheduling.ReasonImpossible, "20m cpu needed, 15m in the quota, 5m short")
	for _, n := range []int32{5, 3} {
		s.scale(j, n)
		awaitSeen(s, j)
		s.pods("waits", fmt.Sprint(n), func(p []*corev1.Pod) bool { return len(p) == int(n) })
	}
	s.fence()
	s.checkNoNode("waits")
	s.checkGroup(j, q, 2)
	s.editQueue(q, quotaOf("30m"))
	s.awaitSize(j, map[string]int{"node": 3})
}

// awaitRunning waits until exactly n pods of a job run.
func (s *space) awaitRunning(j *batch.PyTorchTrainingJob, n int) {
	s.Helper()
	s.pods(j.Name, fmt.Sprintf("%d run", n), func(pods []*corev1.Pod) bool {
		return len(slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })) == n
	})
}

// waiting returns the name of the first pod of a job, by name, that has no node; empty if there is none.
func (s *space) waiting(j *batch.PyTorchTrainingJob) string {
	for _, p := range s.pods(j.Name, "now", func([]*corev1.Pod) bool { return true }) {
		if p.Spec.NodeName == "" {
			return p.Name
		}
	}
	return ""
}

func (s *space) checkGroup(j *batch.PyTorchTrainingJob, queue string, least int32) {
	s.Helper()
	g := s.podGroup(j.Name, "there", func(*scheduling.PodGroup) bool { return true })
	if diff := cmp.Diff(scheduling.PodGroupSpec{MinMember: least, Queue: queue}, g.Spec); diff != "" {
		s.Error(diff)
	}
}

// TestJobStartsWhenAllItsRolesFit verifies that the minimum of each role is the number of its replicas, that the pods
// name their group, queue and role, and that no pod gets a node until all roles fit.
func TestJobStartsWhenAllItsRolesFit(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "70m")
	j := s.newTensorFlow("roles", requesting(role("ps", 2, gate.Idle), "10m"), requesting(role("worker", 3, gate.Obey), "20m"))
	j.Spec.Scheduler = inQueue(q)
	runPolicyOf(j).CleanUpPolicy = batch.CleanUpUnfinished
	s.Create(j)
	s.scheduled("roles", scheduling.ReasonImpossible, "80m cpu needed, 70m in the quota, 10m short")
	g := s.podGroup("roles", "there", func(*scheduling.PodGroup) bool { return true })
	want := scheduling.PodGroupSpec{MinMember: 5, Queue: q, Roles: []scheduling.PodGroupRole{{Name: "ps", MinMember: 2}, {Name: "worker", MinMember: 3}}}
	if diff := cmp.Diff(want, g.Spec); diff != "" {
		t.Error(diff)
	}
	for _, p := range s.pods("roles", "five", func(p []*corev1.Pod) bool { return len(p) == 5 }) {
		if p.Spec.NodeName != "" || p.Spec.SchedulerName != scheduling.SchedulerName {
			t.Errorf("pod %s is on %q by %s", p.Name, p.Spec.NodeName, p.Spec.SchedulerName)
		}
		for label, want := range map[string]string{scheduling.LabelGroupName: "roles", scheduling.LabelQueue: q, scheduling.LabelRole: p.Labels[batch.LabelReplicaType]} {
			if got := p.Labels[label]; got != want {
				t.Errorf("pod %s has label %s=%q, want %q", p.Name, label, got, want)
			}
		}
	}
	s.editQueue(q, quotaOf("80m"))
	awaitPhase(s, j, batch.JobRunning)
	for rank := range 3 {
		s.order(fmt.Sprintf("roles-worker-%d", rank), 0)
	}
	awaitPhase(s, j, batch.JobSucceeded)
	s.pods("roles", "the workers", func(p []*corev1.Pod) bool { return len(p) == 3 })
}
