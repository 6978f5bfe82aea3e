package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

// TestDeletedPodGroupIsRestored verifies that the PodGroups of a waiting and of a running job are recreated, and that
// the running replicas continue.
func TestDeletedPodGroupIsRestored(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "100m")
	s.Create(s.gang("runs", q, jobs.Restarting(requesting(role("w", 2, gate.Obey), "40m"), batch.RestartOnFailure, 1)))
	s.awaitPhase("runs", batch.JobRunning)
	s.Create(s.gang("waits", q, requesting(role("w", 2, gate.Obey), "40m")))
	s.awaitWaits("waits", scheduling.ReasonQuotaExceeded, "80m cpu needed")
	for _, name := range []string{"runs", "waits"} {
		old := s.podGroup(name, "there", func(*scheduling.PodGroup) bool { return true })
		if err := s.Client.Delete(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		s.podGroup(name, "anew", func(g *scheduling.PodGroup) bool { return g.UID != old.UID })
	}
	s.scheduled("runs", scheduling.ReasonScheduled, "")
	s.awaitWaits("waits", scheduling.ReasonQuotaExceeded, "80m cpu needed, 20m of 100m left")
	s.checkNoNode("waits")
	s.order("runs-w-0", 1)
	s.awaitStarts("runs-w-0", 2)
	s.finish("runs", "w", 2)
	s.finish("waits", "w", 2)
	s.checkStarts(map[string]int{"runs-w-1": 1})
}

// TestJobWaitsForTakenPodGroupName verifies that a job does not change a PodGroup of another owner. It reports the
// owner, creates no pod, and continues when the PodGroup is deleted.
func TestJobWaitsForTakenPodGroupName(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "")
	somebody := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "somebody"}}
	s.Create(somebody)
	group := &scheduling.PodGroup{Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: q}, ObjectMeta: metav1.ObjectMeta{Name: "wanted",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "somebody", UID: somebody.UID, Controller: new(true)}}}}
	s.Create(group)
	s.Create(s.gang("wanted", q, role("w", 2, "exit 0")))
	s.awaitReason("wanted", batch.ReasonNameTaken, `PodGroup "wanted"`, `ConfigMap "somebody"`)
	s.awaitEvent("wanted", batch.ReasonNameTaken, `ConfigMap "somebody"`)
	s.checkOutput([]string{"describe", "wanted"}, `PodGroup "wanted"`, `ConfigMap "somebody"`)
	s.checkNothingCreated("wanted")
	if now := s.podGroup("wanted", "there", func(*scheduling.PodGroup) bool { return true }); now.UID != group.UID || now.Spec.MinMember != 1 {
		t.Errorf("the PodGroup of another owner: %+v", now)
	}
	if err := s.Client.Delete(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	s.awaitPhase("wanted", batch.JobSucceeded)
}

// TestWaitingJobThatIsDeletedLeavesNothing verifies that a job that is deleted while it waits leaves no objects, and
// that another job with its name does not inherit its state.
func TestWaitingJobThatIsDeletedLeavesNothing(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "10m")
	large := s.gang("job", q, requesting(role("w", 2, gate.Obey), "10m"))
	s.Create(large)
	s.awaitWaits("job", scheduling.ReasonImpossible, "20m cpu needed, 10m in the quota")
	if err := s.Client.Delete(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	s.Create(s.gang("job", q, requesting(role("w", 1, "exit 0"), "10m")))
	s.awaitPhase("job", batch.JobSucceeded)
	if err := s.Client.Delete(t.Context(), s.job("job")); err != nil {
		t.Fatal(err)
	}
	s.pods("job", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	namespace.AwaitList(s.Test, "no PodGroups", &scheduling.PodGroupList{}, func(g []*scheduling.PodGroup) bool { return len(g) == 0 })
	s.awaitQueue(q, "no pods", func(now *scheduling.QueueStatus) bool {
		return now.PodGroups.Total == 0 && now.Pods == scheduling.QueuePods{} && now.Allocated.Cpu().IsZero()
	})
	s.checkOutput([]string{"queue", "describe", q}, "Waiting none")
}

// TestPriorityReordersWaitingJobs verifies that a waiting job changes its position when its priority changes.
func TestPriorityReordersWaitingJobs(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "20m")
	s.Create(s.gang("runs", q, requesting(role("w", 1, gate.Obey), "20m")))
	s.awaitPhase("runs", batch.JobRunning)
	for _, name := range []string{"first", "second"} {
		s.Create(s.gang(name, q, requesting(role("w", 1, gate.Obey), "20m")))
		s.awaitWaits(name, scheduling.ReasonQuotaExceeded, "20m cpu needed, 0 of 20m left")
	}
	s.edit("second", func(j *batch.GenericJob) { j.Spec.Scheduler.T9kScheduler.Priority = new(int32(5)) })
	s.podGroup("second", "of priority 5", func(g *scheduling.PodGroup) bool { return g.Spec.Priority == 5 })
	s.checkOutput([]string{"queue", "describe", q}, "1 "+s.Namespace+"/second", "2 "+s.Namespace+"/first")
	s.finish("runs", "w", 1)
	s.awaitStarts("second-w-0", 1)
	s.checkNoNode("first")
	s.finish("second", "w", 1)
	s.finish("first", "w", 1)
}

func (s *space) awaitQueue(name, what string, cond func(*scheduling.QueueStatus) bool) {
	s.Helper()
	namespace.AwaitList(s.Beside(""), "queue "+name+": "+what, &scheduling.QueueList{}, func(queues []*scheduling.Queue) bool {
		return len(queues) == 1 && cond(&queues[0].Status)
	}, client.MatchingFields{"metadata.name": name})
}
