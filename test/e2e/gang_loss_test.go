package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
)

// slots gives the node n units of a resource that only this test uses, and returns the name of the resource. The units
// are removed when the test ends.
func (s *space) slots(n int) corev1.ResourceName {
	s.Helper()
	name := corev1.ResourceName("test.tensorstack.dev/" + s.Namespace)
	patch := func(value any) error {
		data, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": map[corev1.ResourceName]any{name: value}}})
		if err != nil {
			return err
		}
		var nodes corev1.NodeList
		if err := s.Client.List(s.AfterTest(), &nodes); err != nil {
			return err
		}
		return s.Client.Status().Patch(s.AfterTest(), &nodes.Items[0], client.RawPatch(types.StrategicMergePatchType, data))
	}
	if err := patch(fmt.Sprint(n)); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := patch(nil); err != nil {
			s.Error(err)
		}
	})
	namespace.AwaitList(s.Beside(""), "the kubelet offers the slots", &corev1.NodeList{}, func(nodes []*corev1.Node) bool {
		q := nodes[0].Status.Allocatable[name]
		return q.Value() == int64(n)
	})
	return name
}

// taking makes each pod of a role request one slot.
func taking(r batch.ReplicaSpec, slot corev1.ResourceName) batch.ReplicaSpec {
	one := corev1.ResourceList{slot: *quantity(1)}
	r.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
	return r
}

// TestPreemptedJobWaitsAndRunsAgain verifies that a job that is preempted for a job of a queue with a higher priority
// waits, is not charged, and runs again.
func TestPreemptedJobWaitsAndRunsAgain(t *testing.T) {
	s := newSpace(t)
	slot := s.slots(4)
	low := s.queue("low", "")
	high := s.queue("high", "", func(q *scheduling.QueueSpec) { q.Priority = 10 })
	s.Create(s.gang("low", low, taking(role("w", 3, gate.Obey), slot)))
	s.awaitPhase("low", batch.JobRunning)
	for rank := range 3 {
		s.awaitStarts(fmt.Sprintf("low-w-%d", rank), 1)
	}
	s.Create(s.gang("high", high, taking(role("w", 2, gate.Obey), slot)))
	s.awaitPhase("high", batch.JobRunning)
	s.awaitWaits("low", scheduling.ReasonNoRoom, "Insufficient "+string(slot))
	s.awaitJob("low", "it is pending", func(j *batch.GenericJob) bool {
		return j.Status.Phase == batch.JobPending && j.Status.Aggregate.Creating == 3
	})
	s.awaitEvent("low", batch.EventReplicaDisrupted, "low-w-0")
	s.checkNoNode("low")
	s.checkOutput([]string{"get"}, "high Running 2/2", "low Pending 0/3")
	s.checkOutput([]string{"describe", "low"}, "2 of the 3 pods that must start together fit", "(PreemptionByScheduler)")
	s.checkOutput([]string{"queue", "describe", low}, "1 "+s.Namespace+"/low 3")
	for rank := range 3 {
		if pods := s.history.Attempts(fmt.Sprintf("low-w-%d", rank)); len(pods) != 2 || !evicted(pods[0]) {
			t.Errorf("%d pods of rank %d; the first was evicted: %t", len(pods), rank, evicted(pods[0]))
		}
	}
	s.finish("high", "w", 2)
	s.awaitPhase("low", batch.JobRunning)
	for rank := range 3 {
		s.awaitStarts(fmt.Sprintf("low-w-%d", rank), 2)
	}
	s.finish("low", "w", 3)
	if n := s.job("low").Status.BackoffCount; n != 0 {
		t.Errorf("%d restarts were charged", n)
	}
}

func evicted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// TestElasticJobLosesSpareReplicasFirst verifies that preemption of an elastic job evicts replicas beyond its minimum
// first, and that the others continue.
func TestElasticJobLosesSpareReplicasFirst(t *testing.T) {
	s := newSpace(t)
	slot := s.slots(4)
	low := s.queue("low", "")
	high := s.queue("high", "", func(q *scheduling.QueueSpec) { q.Priority = 10 })
	j := s.newElastic("low", 2, 4, 4, taking(role("node", 1, gate.Obey), slot))
	j.Spec.Scheduler = inQueue(low)
	s.Create(j)
	s.awaitSize(j, map[string]int{"node": 4})
	before := s.uidsOf(j)
	s.Create(s.gang("high", high, taking(role("w", 1, gate.Obey), slot)))
	s.awaitPhase("high", batch.JobRunning)
	j = awaitStatus(s, j, "three replicas run, and the status has the reason why the other one waits", func(now *batch.JobStatus) bool {
		c := jobs.Condition(read(s, j), batch.JobRunningCondition)
		return now.Phase == batch.JobRunning && now.Aggregate.Running == 3 && now.Aggregate.Creating == 1 && strings.Contains(c.Message, "Insufficient")
	})
	kept := 0
	for name, uid := range s.uidsOf(j) {
		if before[name] == uid {
			kept++
		}
	}
	if kept != 3 || j.Status.BackoffCount != 0 {
		t.Errorf("%d pods were kept, %d restarts charged", kept, j.Status.BackoffCount)
	}
	s.checkOutput([]string{"describe", "low"}, "Why: 3 replicas run. 1 more is awaited.", "Insufficient")
	s.finish("high", "w", 1)
	s.awaitSize(j, map[string]int{"node": 4})
}

// TestJobOlderThanItsQueueAllowsFails verifies that a job whose pods are older than its queue allows fails for that
// reason, and is not restarted, whatever its restart policy allows. Its running pods are deleted under every clean-up
// policy.
func TestJobOlderThanItsQueueAllowsFails(t *testing.T) {
	t.Parallel()
	for policy, left := range map[batch.CleanUpPolicy]string{
		batch.CleanUpNone: "job-done-0 ", batch.CleanUpUnfinished: "job-done-0 ", batch.CleanUpAll: "",
	} {
		t.Run(string(policy), func(t *testing.T) {
			s := newSpace(t)
			q := s.queue("q", "")
			j := s.gang("job", q, jobs.Restarting(role("w", 2, gate.Idle), batch.RestartAlways, -1))
			j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, s.newJob("job", role("done", 1, "exit 0")).Spec.ReplicaSpecs...)
			j.Spec.CleanUpPolicy = policy
			s.Create(j)
			s.awaitJob("job", "one replica has ended, two run", func(j *batch.GenericJob) bool {
				return j.Status.Aggregate == batch.Aggregate{Succeeded: 1, Running: 2}
			})
			s.awaitStarts("job-w-0", 1)
			s.awaitStarts("job-w-1", 1)
			s.editQueue(q, func(q *scheduling.QueueSpec) { q.MaxDuration = "1s" })
			j = s.awaitPhase("job", batch.JobFailed)
			checkEnd(t, j, batch.ReasonQueueMaxDuration, "older than the 1s that queue "+q+" allows")
			s.awaitEvent("job", batch.ReasonQueueMaxDuration, "1s")
			s.pods("job", "only those that finished", func(p []*corev1.Pod) bool { return podNames(p) == left })
			s.checkOutput([]string{"get"}, "job Failed")
			s.checkOutput([]string{"describe", "job"}, "older than the 1s")
			s.fence()
			s.pods("job", "none is new", func(p []*corev1.Pod) bool { return podNames(p) == left })
			if n := s.job("job").Status.BackoffCount; n != 0 {
				t.Errorf("%d restarts were charged", n)
			}
			s.checkStarts(map[string]int{"job-w-0": 1, "job-w-1": 1})
		})
	}
}

// TestWaitingJobOlderThanItsQueueAllowsFails verifies that the maximum age also applies to waiting pods.
func TestWaitingJobOlderThanItsQueueAllowsFails(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "10m", func(q *scheduling.QueueSpec) { q.MaxDuration = "2s" })
	s.Create(s.gang("waits", q, requesting(role("w", 2, "exit 0"), "10m")))
	j := s.awaitPhase("waits", batch.JobFailed)
	checkEnd(t, j, batch.ReasonQueueMaxDuration, "older than the 2s that queue "+q+" allows")
	s.fence()
	s.pods("waits", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	if n := len(s.history.Attempts("waits-w-0")); n != 1 {
		t.Errorf("%d pods were created for one replica", n)
	}
}
