package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// newTraining returns a play of a job whose rank 0 decides and whose replicas share a restart limit.
func newTraining(t *testing.T, replicas int, limit int32) *play {
	p := newPlay(t, replicas, 0)
	p.job.Roles[0].Restart.Limit, p.job.RestartLimit = nil, &limit
	master := []Rule{{Text: `{"worker":[0]}`, Members: []Member{{}}}}
	p.job.Success, p.job.Failure = master, master
	return p
}

// TestReplicasShareTheLimitOfRestarts verifies that replicas that fail together cost one retry, and that a failure
// without retries left fails the job.
func TestReplicasShareTheLimitOfRestarts(t *testing.T) {
	p := newTraining(t, 3, 2).pass().run(0, 1, 2).pass()
	p.exit(1, 1).exit(2, 1).pass().want(batch.JobRunning, 1).pass().run(1, 2).pass().want(batch.JobRunning, 1)
	p.after(time.Minute).exit(1, 1).after(10*time.Second).pass().want(batch.JobRunning, 2).pass().run(1).pass().want(batch.JobRunning, 2)
	p.after(time.Minute).exit(2, 1).pass().want(batch.JobFailed, 2).wantReason(batch.JobFailedCondition, batch.ReasonBackoffLimitExceeded)
}

func TestMasterDecides(t *testing.T) {
	p := newTraining(t, 2, 0)
	p.job.Roles[0].Restart = Restart{}
	p.pass().run(0, 1).pass()
	p.exit(1, 1).pass().want(batch.JobRunning, 0).wantReason(batch.JobReplicaFailure, batch.ReasonReplicaFailed)
	p.exit(0, 0).pass().want(batch.JobSucceeded, 0)
}

func TestExitCodesThatLeadToARestart(t *testing.T) {
	for code, restarts := range map[int32]int32{1: 0, 130: 1, 137: 1, 138: 1, 139: 0, 143: 1, 255: 0} {
		p := newTraining(t, 2, 3)
		p.job.Roles[0].Restart = Restart{RestartCodes: []CodeRange{{130, 130}, {137, 138}, {143, 143}}}
		p.pass().run(0, 1).pass().exit(1, code).pass()
		if p.stat.BackoffCount != restarts {
			t.Errorf("exit code %d leads to %d restarts, want %d", code, p.stat.BackoffCount, restarts)
		}
	}
}

// TestExitCodesDecideBeforeThePolicy verifies that exit codes of a GenericJob override its policy, and other codes
// follow the policy.
func TestExitCodesDecideBeforeThePolicy(t *testing.T) {
	lists := Restart{RestartCodes: []CodeRange{{128, 255}}, FailCodes: []CodeRange{{3, 3}, {5, 9}}}
	for _, c := range []struct {
		onFailure bool
		code      int32
		restarts  int32
	}{{true, 1, 1}, {true, 3, 0}, {true, 4, 1}, {true, 5, 0}, {true, 9, 0}, {true, 137, 1}, {false, 1, 0}, {false, 3, 0}, {false, 128, 1}, {false, 255, 1}} {
		p := newPlay(t, 2, 2)
		r := &p.job.Roles[0].Restart
		r.OnFailure, r.RestartCodes, r.FailCodes = c.onFailure, lists.RestartCodes, lists.FailCodes
		p.pass().run(0, 1).pass().exit(1, c.code).pass()
		if p.stat.BackoffCount != c.restarts {
			t.Errorf("on failure %t: exit code %d leads to %d restarts, want %d", c.onFailure, c.code, p.stat.BackoffCount, c.restarts)
		}
	}
}

// TestExitCodeOutlivesItsPod verifies that a replica whose pod is deleted during the back-off is restarted and charged,
// because the status keeps the exit code.
func TestExitCodeOutlivesItsPod(t *testing.T) {
	p := newTraining(t, 2, 3)
	p.job.Roles[0].Restart = Restart{RestartCodes: []CodeRange{{137, 137}}}
	p.pass().run(0, 1).pass().exit(1, 137).pass().pass().run(1).after(time.Second).pass().exit(1, 137).after(2*time.Second).pass().want(batch.JobRunning, 1)
	delete(p.pods, "job-worker-1")
	p.pass().want(batch.JobRunning, 2)
}

// TestCountedPodOfReturnedRankIsNotChargedAgain verifies that a restart is not charged again if the rank of its replica
// is removed by a scale-down and returns before the old pod has been deleted.
func TestCountedPodOfReturnedRankIsNotChargedAgain(t *testing.T) {
	p := newTraining(t, 2, 3)
	p.job.Elastic = &Elastic{Min: 1, Max: 2}
	p.pass().run(0, 1).pass().exit(1, 1)
	dead := p.pod(1)
	p.pass().want(batch.JobRunning, 1)
	p.pods[dead.Name] = dead // the cache does not show the deletion yet
	p.job.Roles[0].Replicas = 1
	p.pass().want(batch.JobRunning, 1)
	p.pods[dead.Name] = dead
	p.job.Roles[0].Replicas = 2
	p.pass().want(batch.JobRunning, 1)
}

func TestDeadlineStopsRunningPods(t *testing.T) {
	p := newTraining(t, 3, 0)
	hour := time.Hour
	p.job.Deadline = &hour
	p.pass().run(0, 1, 2).pass().exit(2, 0).after(2 * time.Second).pass()
	p.after(hour-3*time.Second).pass().want(batch.JobRunning, 0)
	if p.plan.RequeueAfter != time.Second {
		t.Fatalf("a second before the deadline, the next pass is in %s", p.plan.RequeueAfter)
	}
	p.after(time.Second).pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonDeadlineExceeded)
	if len(p.pods) != 1 || p.pods["job-worker-2"] == nil {
		t.Errorf("%d pods remain, want only the finished ones", len(p.pods))
	}
}

func TestDeadlineRestartsAfterAPause(t *testing.T) {
	p := newTraining(t, 1, 0)
	hour := time.Hour
	p.job.Deadline = &hour
	p.pass().run(0).pass()
	p.job.Pause = true
	p.after(50*time.Minute).pass().pass().want(batch.JobPaused, 0)
	p.after(24*time.Hour).pass().want(batch.JobPaused, 0)
	p.job.Pause = false
	p.pass().run(0).after(59*time.Minute).pass().want(batch.JobRunning, 0)
	p.after(time.Minute).pass().want(batch.JobFailed, 0)
}

// TestPodTooOldForItsQueueEndsTheJob verifies that a pod that its queue removes because of its age ends the job,
// without a charge and with the queue's reason.
func TestPodTooOldForItsQueueEndsTheJob(t *testing.T) {
	p := newTraining(t, 2, 3).pass().run(0, 1).pass()
	p.pod(1).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "QueueMaxDuration", Message: "the pod is older than the 1h that queue q allows"}}
	p.pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonQueueMaxDuration)
}

func TestScalingKeepsRemainingPods(t *testing.T) {
	p := newTraining(t, 2, 3)
	p.job.Elastic = &Elastic{Min: 2, Max: 9}
	size := func(n int) *play { p.job.Roles[0].Replicas = n; return p.pass() }
	p.pass().run(0, 1).pass().want(batch.JobRunning, 0)
	first := p.pod(0).UID
	size(4).want(batch.JobRunning, 0) // the job stays Running while the new replicas start
	if len(p.pods) != 4 || p.events() != "JobScaled" || p.stat.Selector == "" {
		t.Fatalf("%d pods, events %q, selector %q", len(p.pods), p.events(), p.stat.Selector)
	}
	p.run(2, 3).exit(3, 1).pass().pass().run(3).pass().want(batch.JobRunning, 1)
	size(3).want(batch.JobRunning, 1)
	if p.pods["job-worker-3"] != nil || p.pod(0).UID != first {
		t.Error("want only the highest rank removed")
	}
	size(4).run(3).pass().want(batch.JobRunning, 1) // the restart of the removed replica still counts
	p.exit(3, 1).pass().pass().run(3).after(time.Second).pass().want(batch.JobRunning, 2)
}

func TestSizeStaysAfterTheFirstSuccess(t *testing.T) {
	p := newTraining(t, 3, 3)
	p.job.Elastic = &Elastic{Min: 1, Max: 9}
	p.pass().run(0, 1, 2).pass().exit(2, 0)
	p.job.Roles[0].Replicas = 1
	p.after(2 * time.Second).pass()
	p.job.Roles[0].Replicas = 5
	p.after(2 * time.Second).pass()
	if len(p.pods) != 3 || p.stat.Replicas != 3 {
		t.Fatalf("%d pods of %d replicas, want the 3 there were", len(p.pods), p.stat.Replicas)
	}
	p.exit(0, 0).pass().want(batch.JobSucceeded, 0)
	p.job.Roles[0].Replicas = 1
	p.pass()
	if len(p.pods) != 3 {
		t.Errorf("%d pods after the end, want 3", len(p.pods))
	}
}
