package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// groups applies the plan's changes to the PodGroup.
func (p *play) groups() *play {
	for _, o := range append(p.plan.Create, p.plan.Update...) {
		if g, ok := o.(*scheduling.PodGroup); ok {
			p.seen.Group = g
		}
	}
	return p
}

func (p *play) wantGroup(least, worker int32) {
	p.t.Helper()
	want := scheduling.PodGroupSpec{MinMember: least, Queue: "q", Roles: []scheduling.PodGroupRole{{Name: "worker", MinMember: worker}}}
	if diff := cmp.Diff(want, p.seen.Group.Spec); diff != "" {
		p.t.Error(diff)
	}
}

// TestGroupMinimumExcludesFinishedReplicas verifies that the minimum of a group is the number of pods that will exist:
// finished replicas without a pod do not count. It also verifies that the plan that changes the group does not act on
// an old observation of the job.
func TestGroupMinimumExcludesFinishedReplicas(t *testing.T) {
	p := newPlay(t, 3, 1)
	p.job.Gang = &Gang{Queue: "q", MinMember: 3, ByRole: true}
	p.pass().groups().run(0, 1, 2).pass()
	p.wantGroup(3, 3)
	p.exit(0, 0).exit(1, 1).pass().groups()
	p.wantGroup(3, 3) // the succeeded pod still exists, and the other one will be replaced
	p.job.Pause = true
	p.pass().pass()
	p.job.Pause = false
	p.pass().groups()
	p.wantGroup(2, 2)
	if len(p.pods) != 2 {
		t.Fatalf("%d pods, want 2", len(p.pods))
	}
	p.run(1, 2).exit(1, 0).pass().groups()
	p.wantGroup(2, 2)
	delete(p.pods, "job-worker-1") // as the cluster's garbage collection does
	p.pass().groups()
	p.wantGroup(1, 1)
	if len(p.plan.Update) > 0 && !p.plan.Confirm && p.plan.Status == nil {
		t.Error("the group was changed for an old observation")
	}
}

// TestGroupConditionsExplainWaiting verifies that the scheduler's conditions explain why a job waits. The operator's
// condition SufficientGroupMember does not, because its counts lag behind.
func TestGroupConditionsExplainWaiting(t *testing.T) {
	p := newPlay(t, 2, 0)
	p.job.Gang = &Gang{Queue: "q", MinMember: 2}
	p.pass().groups()
	say := func(t scheduling.PodGroupConditionType, message string) {
		p.seen.Group.Status.Conditions = append(p.seen.Group.Status.Conditions, scheduling.PodGroupCondition{Type: t, Status: metav1.ConditionFalse, Message: message})
	}
	say(scheduling.SufficientGroupMember, "0 of 2 exist")
	p.pod(0).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: scheduling.ReasonImpossible, Message: "waits until all of PodGroup job can start"}}
	// A pod's reason may be visible before the reason of its group.
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonCreatingReplicas)
	say(scheduling.GroupScheduled, "queue q is closed")
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonUnschedulable)
	if got := condition(p.stat, batch.JobRunningCondition).Message; got != "0 of 2 replicas run. PodGroup: queue q is closed" {
		t.Error(got)
	}
	c := &p.seen.Group.Status.Conditions[1]
	c.Reason, c.Message = scheduling.ReasonImpossible, "the quota is too small"
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonImpossible)
	if got := p.eventReasons[len(p.eventReasons)-1]; !strings.Contains(got, string(batch.ReasonImpossible)) {
		t.Errorf("events %q do not report that it is impossible", p.eventReasons)
	}
	c.Reason, c.Message = scheduling.ReasonQuotaExceeded, "the quota is used up"
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonUnschedulable)
}

// TestResumeIsNoDisruption verifies that a replica gets a new attempt, but does not count as disrupted, if its job
// resumes before the operator observes that the pause has deleted the replica's pod.
func TestResumeIsNoDisruption(t *testing.T) {
	p := newPlay(t, 1, 0).pass().run(0).pass()
	p.job.Pause = true
	p.pass()
	p.job.Pause = false
	p.pass().run(0).pass().want(batch.JobRunning, 0)
	for _, reasons := range p.eventReasons {
		if strings.Contains(reasons, string(batch.EventReplicaDisrupted)) {
			t.Errorf("events %q", p.eventReasons)
		}
	}
	if got := p.pod(0).Labels[batch.LabelReplicaAttempt]; got != "1" {
		t.Errorf("the pod is attempt %s", got)
	}
}

// TestDisruptedReplicaHasTheReason verifies that the status of a disrupted replica has the reason given by the
// component that removed the pod.
func TestDisruptedReplicaHasTheReason(t *testing.T) {
	p := newPlay(t, 1, 0).pass().run(0).pass()
	p.pod(0).DeletionTimestamp = &metav1.Time{Time: p.now}
	p.pod(0).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler"}}
	p.pass().want(batch.JobPending, 0)
	if r := p.stat.Tasks[0].Replicas[0]; r.Phase != batch.ReplicaDeleted || r.Reason != "PreemptionByScheduler" {
		t.Errorf("the replica: %+v", r)
	}
}

// TestNoWarningForPodsThatTheirQueueEnds verifies that no warning about held resources is emitted for pods that their
// queue is about to end.
func TestNoWarningForPodsThatTheirQueueEnds(t *testing.T) {
	p := newPlay(t, 2, 0).pass().run(0, 1).pass()
	for rank := range 2 {
		p.pod(rank).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: string(batch.ReasonQueueMaxDuration)}}
	}
	p.pass().want(batch.JobFailed, 0)
	if p.events() != string(batch.ReasonQueueMaxDuration) {
		t.Errorf("events %q", p.events())
	}
}

// TestGroupNamesTheRequesterOfItsJob verifies that the group's requester annotation is updated if it is wrong or
// missing. Other annotations stay, and so does the requester if the job no longer names one.
func TestGroupNamesTheRequesterOfItsJob(t *testing.T) {
	p := newPlay(t, 2, 1)
	p.job.Gang = &Gang{Queue: "q", MinMember: 2, ByRole: true}
	want := func(by string, updates int) {
		t.Helper()
		if got := p.seen.Group.Annotations[scheduling.AnnotationRequestedBy]; got != by || len(p.plan.Update) != updates {
			t.Errorf("after %d updates the requester of the group is %q, want %q", len(p.plan.Update), got, by)
		}
	}
	p.pass().groups()
	want("", 0)
	p.seen.Group.Annotations = map[string]string{"other": "kept"}
	p.job.RequestedBy = `["alice"]`
	p.pass().groups()
	want(`["alice"]`, 1)
	if p.seen.Group.Annotations["other"] != "kept" {
		t.Error("the group lost another annotation")
	}
	p.pass().groups()
	want(`["alice"]`, 0)
	p.job.RequestedBy = `["bob"]`
	p.pass().groups()
	want(`["bob"]`, 1)
	p.job.RequestedBy = ""
	p.pass().groups()
	want(`["bob"]`, 0)
}
