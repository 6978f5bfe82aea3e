package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestPausedJobReleasesItsQuota verifies that a paused job uses no quota, and that it waits like any other job when it
// is resumed.
func TestPausedJobReleasesItsQuota(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "100m")
	s.Create(s.gang("a", q, requesting(role("w", 2, gate.Obey), "50m")))
	s.awaitPhase("a", batch.JobRunning)
	s.Create(s.gang("b", q, requesting(role("w", 2, gate.Obey), "40m")))
	s.awaitWaits("b", scheduling.ReasonQuotaExceeded, "80m cpu needed, 0 of 100m left")
	s.checkNoNode("b")
	s.checkOutput([]string{"get"}, "a Running 2/2", "b Pending 0/2")
	s.checkOutput([]string{"describe", "b"})
	s.checkOutput([]string{"queue", "list"})
	s.checkOutput([]string{"queue", "describe", q}, "100m of 100m", "80m cpu needed, 0 of 100m left")

	s.awaitStarts("a-w-0", 1)
	s.setPause("a", true)
	s.awaitPhase("b", batch.JobRunning)
	s.awaitPhase("a", batch.JobPaused)
	s.setPause("a", false)
	s.awaitWaits("a", scheduling.ReasonQuotaExceeded, "100m cpu needed, 20m of 100m left")
	s.awaitPhase("a", batch.JobResuming)
	s.checkNoNode("a")
	s.finish("b", "w", 2)
	s.awaitStarts("a-w-0", 2)
	s.finish("a", "w", 2)
}

// TestResumedGangDoesNotWaitForFinishedReplicas verifies that replicas that succeeded before a pause do not count
// towards the gang that resumes.
func TestResumedGangDoesNotWaitForFinishedReplicas(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "100m")
	j := s.gang("half", q, requesting(role("w", 2, gate.Obey), "20m"))
	j.Spec.ReplicaSpecs = append(j.Spec.ReplicaSpecs, s.newJob("half", requesting(role("v", 1, gate.Obey), "20m")).Spec.ReplicaSpecs...)
	s.Create(j)
	s.awaitPhase("half", batch.JobRunning)
	s.order("half-w-0", 0)
	s.order("half-v-0", 0)
	s.awaitJob("half", "two replicas have succeeded", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Succeeded == 2 })
	s.awaitStarts("half-w-1", 1)
	s.setPause("half", true)
	s.pods("half", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.setPause("half", false)
	s.awaitStarts("half-w-1", 2)
	s.order("half-w-1", 0)
	s.awaitPhase("half", batch.JobSucceeded)
	s.checkStarts(map[string]int{"half-w-0": 1, "half-v-0": 1})
}

// TestClosedQueueStartsNoNewJob verifies that jobs that wait in a closed queue keep waiting until the queue is opened,
// and that the queue refuses new jobs. A replacement starts if another pod of its job still runs, and waits otherwise.
func TestClosedQueueStartsNoNewJob(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "100m")
	s.Create(s.gang("runs", q, jobs.Restarting(requesting(role("w", 2, gate.Obey), "40m"), batch.RestartOnFailure, 1)))
	s.awaitPhase("runs", batch.JobRunning)
	s.Create(s.gang("alone", q, jobs.Restarting(requesting(role("w", 1, gate.Obey), "1m"), batch.RestartOnFailure, 1)))
	s.awaitPhase("alone", batch.JobRunning)
	s.Create(s.gang("waits", q, requesting(role("w", 2, gate.Obey), "40m")))
	s.awaitWaits("waits", scheduling.ReasonQuotaExceeded, "80m cpu needed, 19m of 100m left")
	s.editQueue(q, func(q *scheduling.QueueSpec) { q.Closed = true })
	s.awaitWaits("waits", scheduling.ReasonQueueClosed, "queue "+q+" is closed")
	s.checkOutput([]string{"describe", "waits"}, "is closed")
	s.checkOutput([]string{"queue", "describe", q}, "no: no new group starts")
	s.checkOutput([]string{"queue", "list"})
	late := s.gang("late", q, requesting(role("w", 1, gate.Obey), "1m"))
	late.SetNamespace(s.Namespace)
	s.Await("the closed queue takes no new job", func() error { // the API server observes the queue a moment later
		err := s.Client.Create(t.Context(), late.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "is closed") {
			return fmt.Errorf("a job that is created: %w", err)
		}
		return nil
	})
	s.orders("runs-w-0", 1, 0)
	s.order("runs-w-1", 0)
	s.awaitPhase("runs", batch.JobSucceeded)
	// If no pod of a gang is running, the scheduler treats a restart as the start of a new gang.
	s.order("alone-w-0", 1)
	s.awaitWaits("alone", scheduling.ReasonQueueClosed, "queue "+q+" is closed")
	s.checkNoNode("waits")
	s.editQueue(q, func(q *scheduling.QueueSpec) { q.Closed = false })
	s.finish("waits", "w", 2)
	s.awaitStarts("alone-w-0", 2)
	s.finish("alone", "w", 1)
}

// TestJobWaitsWhileItsQueueIsMissing verifies that a job waits while its queue does not exist, and that the replacement
// of a replica of a running job waits too.
func TestJobWaitsWhileItsQueueIsMissing(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "100m")
	s.Create(s.gang("runs", q, jobs.Restarting(requesting(role("w", 2, gate.Obey), "40m"), batch.RestartOnFailure, 1)))
	s.awaitPhase("runs", batch.JobRunning)
	s.Create(s.gang("waits", q, requesting(role("w", 2, gate.Obey), "40m")))
	s.awaitWaits("waits", scheduling.ReasonQuotaExceeded, "80m cpu needed")
	s.deleteQueue(q)
	s.awaitWaits("waits", scheduling.ReasonQueueNotFound, "queue "+q+" does not exist")
	s.checkOutput([]string{"describe", "waits"}, "does not exist")
	s.order("runs-w-0", 1)
	s.awaitReason("runs", batch.ReasonUnschedulable, "queue "+q+" does not exist")
	s.checkOutput([]string{"describe", "runs"}, "does not exist")
	s.fence()
	s.checkStarts(map[string]int{"runs-w-1": 1})

	s.queue("q", "100m")
	s.awaitStarts("runs-w-0", 2)
	s.awaitPhase("runs", batch.JobRunning)
	s.awaitWaits("waits", scheduling.ReasonQuotaExceeded, "80m cpu needed, 20m of 100m left")
	s.finish("runs", "w", 2)
	s.finish("waits", "w", 2)
}

// TestRunningJobContinuesAboveLoweredQuota verifies that pods continue to run if the quota is lowered below their use,
// and that new pods, including replacements, wait.
func TestRunningJobContinuesAboveLoweredQuota(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "100m")
	s.Create(s.gang("runs", q, jobs.Restarting(requesting(role("w", 2, gate.Obey), "40m"), batch.RestartOnFailure, 1)))
	s.awaitPhase("runs", batch.JobRunning)
	s.editQueue(q, quotaOf("50m"))
	s.Create(s.gang("waits", q, requesting(role("w", 1, gate.Obey), "40m")))
	s.awaitWaits("waits", scheduling.ReasonQuotaExceeded, "40m cpu needed, 0 of 50m left")
	s.checkOutput([]string{"queue", "describe", q})
	s.checkOutput([]string{"queue", "list"})

	s.order("runs-w-0", 1)
	s.awaitReason("runs", batch.ReasonUnschedulable, "1 of 2 replicas run", "40m cpu needed, 10m of 50m left")
	s.checkOutput([]string{"describe", "runs"}, "40m cpu needed, 10m of 50m left")
	s.checkOutput([]string{"get", "runs"})
	s.checkOutput([]string{"queue", "describe", q})
	s.fence()
	s.checkStarts(map[string]int{"runs-w-1": 1})
	s.checkNoNode("waits")

	// The replacement has precedence over the new job.
	s.editQueue(q, quotaOf("80m"))
	s.awaitStarts("runs-w-0", 2)
	s.checkNoNode("waits")
	s.finish("runs", "w", 2)
	s.finish("waits", "w", 1)
}
