package engine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

func TestInvalidJobFailsAtOnce(t *testing.T) {
	p := newPlay(t, 1, 0)
	ttl := time.Minute
	p.job.Roles, p.job.Invalid, p.job.TTL, p.job.Debug = nil, "spec.replicaSpecs: too many", &ttl, true
	p.pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonInvalidSpec).wantReason(batch.JobInitialized, batch.ReasonInvalidSpec)
	if len(p.pods) > 0 || p.events() != string(batch.ReasonInvalidSpec) || p.stat.StartTime != nil || p.stat.CompletionTime == nil {
		t.Fatalf("%d pods, events %q, status %+v", len(p.pods), p.events(), p.stat)
	}
	if p.pass(); p.plan.Status != nil || p.plan.RequeueAfter != time.Minute {
		t.Fatalf("written again: %t; requeued after %s", p.plan.Status != nil, p.plan.RequeueAfter)
	}
	if p.after(time.Minute).pass(); !p.plan.DeleteJob {
		t.Error("the job was not deleted after its TTL")
	}
	p.pass().wantReason(batch.JobInitialized, batch.ReasonInvalidSpec)
}

// TestJobThatBecomesInvalidIsCleanedUp verifies that a job that becomes invalid and cannot be interpreted fails, and
// its pods are cleaned up as usual.
func TestJobThatBecomesInvalidIsCleanedUp(t *testing.T) {
	for policy, want := range map[batch.CleanUpPolicy]int{batch.CleanUpNone: 2, batch.CleanUpUnfinished: 1, batch.CleanUpAll: 0} {
		p := newPlay(t, 2, 0)
		p.job.CleanUp = policy
		p.job.Success = []Rule{{Text: "{}", Members: []Member{{0, 0}, {0, 1}}}}
		p.pass().run(0, 1).pass().exit(1, 0).after(2*time.Second).pass().want(batch.JobRunning, 0)
		p.job.Roles, p.job.Success, p.job.Invalid = nil, nil, "spec.successRules: senseless"
		p.pass().want(batch.JobFailed, 0).wantReason(batch.JobInitialized, batch.ReasonAccepted)
		if len(p.pods) != want {
			t.Errorf("with policy %s %d pods remain, want %d", policy, len(p.pods), want)
		}
		if reasons := p.events(); policy == batch.CleanUpNone && reasons != "InvalidSpec ReplicasHoldResources" {
			t.Errorf("events %q", reasons)
		}
		p.after(time.Minute).pass().want(batch.JobFailed, 0)
	}
}

// TestPodOfInvalidJobOnALostNodeIsDeleted verifies that a pod of an invalid job on a lost node is deleted by force as
// usual.
func TestPodOfInvalidJobOnALostNodeIsDeleted(t *testing.T) {
	p := newPlay(t, 1, 0).pass().run(0).pass()
	p.job.Roles, p.job.Invalid, p.job.CleanUp = nil, "senseless", batch.CleanUpAll
	asked := metav1.NewTime(p.now)
	p.pods["job-worker-0"].DeletionTimestamp = &asked
	p.seen.LostNodes = map[string]bool{"node": true}
	if p.after(5 * time.Minute).pass(); len(p.plan.Delete) != 1 || !p.plan.Delete[0].Force || p.plan.Delete[0].UID != "1" {
		t.Errorf("deletions %+v", p.plan.Delete)
	}
}

// TestInvalidJobThatHasStartedContinues verifies that an error in a job that has started does not stop the job, unless
// the job has too many replicas.
func TestInvalidJobThatHasStartedContinues(t *testing.T) {
	p := newPlay(t, 2, 0)
	p.pass().run(0, 1).after(2*time.Second).pass().want(batch.JobRunning, 0)
	p.job.Invalid = "spec.replicaSpecs: the limit is 1"
	p.after(time.Minute).pass().want(batch.JobRunning, 0).wantReason(batch.JobInitialized, batch.ReasonAccepted)
	p.job.Roles[0].Replicas = maxInvalidReplicas + 1
	p.after(time.Minute).pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonInvalidSpec)
}

// TestInvalidJobThatHasNotStartedGetsNoPods verifies that the roles of an invalid job that has not started are ignored,
// because two of them may have the same name.
func TestInvalidJobThatHasNotStartedGetsNoPods(t *testing.T) {
	p := newPlay(t, 2, 0)
	p.job.Roles, p.job.Invalid = append(p.job.Roles, p.job.Roles[0]), "spec.replicaSpecs[1].type: another role has this name"
	p.pass().want(batch.JobFailed, 0)
	if len(p.pods) > 0 || len(p.stat.Tasks) > 0 || p.stat.StartTime != nil {
		t.Errorf("%d pods, status %+v", len(p.pods), p.stat)
	}
}
