package engine

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

func TestJobRunsToSuccess(t *testing.T) {
	p := newPlay(t, 2, 0).pass().want(batch.JobPending, 0)
	if len(p.pods) != 2 || p.events() != "JobStarted" {
		t.Fatalf("%d pods, events %q", len(p.pods), p.events())
	}
	p.run(0, 1).pass().want(batch.JobRunning, 0)
	p.exit(0, 0).after(2*time.Second).pass().want(batch.JobRunning, 0)
	p.exit(1, 0).pass().want(batch.JobSucceeded, 0).wantReason(batch.JobCompleted, batch.ReasonSuccessRule)
	if diff := cmp.Diff(batch.Aggregate{Succeeded: 2}, p.stat.Aggregate); diff != "" {
		t.Error(diff)
	}
	if p.after(time.Hour).pass(); p.plan.Status != nil || len(p.plan.Pods) > 0 {
		t.Errorf("a finished job is changed again: %+v", p.plan)
	}
}

func TestRestartsStopAtTheLimit(t *testing.T) {
	p := newPlay(t, 1, 2).pass()
	for want := int32(1); want <= 2; want++ {
		p.run(0).exit(0, 3).after(time.Hour).pass().want(batch.JobPending, want)
		p.pass()
		if got := p.pod(0).Annotations[batch.AnnotationRestarts]; got != strconv.Itoa(int(want)) {
			t.Fatalf("the pod carries %s restarts, want %d", got, want)
		}
	}
	p.run(0).exit(0, 3).after(time.Hour).pass().want(batch.JobFailed, 2).wantReason(batch.JobFailedCondition, batch.ReasonFailureRule)
	if p.pass(); len(p.plan.Pods) > 0 {
		t.Error("a pod is created after the end")
	}
}

func TestBackoffDoublesFromTheSecondRestart(t *testing.T) {
	p := newPlay(t, 1, 100).pass()
	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		p.run(0).exit(0, 1)
		if want > 0 {
			p.after(want-time.Millisecond).pass().want(batch.JobPending, int32(i))
			if p.plan.RequeueAfter != time.Millisecond {
				t.Fatalf("restart %d: requeued after %s, want 1ms", i+1, p.plan.RequeueAfter)
			}
			p.after(time.Millisecond)
		}
		p.pass().want(batch.JobPending, int32(i+1)).pass()
	}
	p.run(0).after(10*time.Minute).exit(0, 1).pass() // a run of BackoffReset, ten minutes, resets the back-off
	if got := p.stat.Tasks[0].Replicas[0].Backoff; got != 1 {
		t.Errorf("back-off after a long run is %d, want 1", got)
	}
}

func TestDisruptionsAreNotCharged(t *testing.T) {
	cases := map[string]func(*play){
		"evicted for pressure on the node": func(p *play) {
			p.exit(0, 137).pod(0).Status.Reason = "Evicted"
			p.pod(0).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		},
		"preempted": func(p *play) {
			p.exit(0, 143).pod(0).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		},
		"deleted by a user": func(p *play) { delete(p.pods, "job-worker-0") },
		"seen at the kubelet's last word on its deletion": func(p *play) {
			p.exit(0, 143).after(2 * time.Second)
			at, none := metav1.NewTime(p.now), int64(0) // the API server has overwritten the time of the request
			p.pod(0).DeletionTimestamp, p.pod(0).DeletionGracePeriodSeconds = &at, &none
			p.pass()
			delete(p.pods, "job-worker-0")
		},
		"turned away by the kubelet": func(p *play) { p.pod(0).Status.Phase, p.pod(0).Status.Reason = corev1.PodFailed, "OutOfcpu" },
		"turned away by a node under pressure": func(p *play) {
			p.pod(0).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
		},
	}
	for name, disrupt := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, 1, 0).pass().run(0).pass().want(batch.JobRunning, 0)
			disrupt(p)
			p.after(time.Minute).pass().pass().want(batch.JobPending, 0)
			if got := p.pod(0).Labels[batch.LabelReplicaAttempt]; got != "1" {
				t.Errorf("the new pod is attempt %s, want 1", got)
			}
			if p.after(time.Minute).pass(); strings.Count(strings.Join(p.eventReasons, " "), "ReplicaDisrupted") != 1 {
				t.Errorf("events %q, want ReplicaDisrupted once", p.eventReasons)
			}
			p.run(0).pass().exit(0, 0).pass().want(batch.JobSucceeded, 0)
		})
	}
}

func TestDeletionOfAFinishedPodKeepsItsResult(t *testing.T) {
	p := newPlay(t, 2, 0).pass().run(0, 1).pass().exit(0, 0).after(time.Minute).pass()
	delete(p.pods, "job-worker-0")
	p.after(time.Minute).pass()
	if len(p.plan.Pods) > 0 {
		t.Fatal("a succeeded replica runs again")
	}
	p.exit(1, 0).pass().want(batch.JobSucceeded, 0)
}

func TestFailureWinsOverSuccess(t *testing.T) {
	p := newPlay(t, 2, 0)
	p.job.Success = []Rule{{Text: `{"worker":[0]}`, Members: []Member{{0, 0}}}}
	p.job.Failure = []Rule{{Text: `{"worker":[1]}`, Members: []Member{{0, 1}}}}
	p.pass().run(0, 1).exit(0, 0).exit(1, 1).pass().want(batch.JobFailed, 0)
	if got := condition(p.stat, batch.JobFailedCondition).Message; !strings.Contains(got, `{"worker":[1]}`) {
		t.Errorf("the message does not name the rule: %q", got)
	}
}

func TestJobFailsWhenItsSuccessRulesCannotHold(t *testing.T) {
	p := newPlay(t, 3, 0)
	p.job.Success = []Rule{{Text: `{"worker":[0]}`, Members: []Member{{0, 0}}}}
	p.job.Failure = []Rule{{Text: `{"worker":[1,2]}`, Members: []Member{{0, 1}, {0, 2}}}}
	p.pass().run(0, 1, 2).exit(1, 1).pass().want(batch.JobRunning, 0).wantReason(batch.JobReplicaFailure, batch.ReasonReplicaFailed)
	p.exit(0, 1).pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonSuccessRulesUnsatisfiable)
}

// TestSuccessRulesWithoutFailureRules verifies that, with success rules only, replicas that no rule names do not affect
// the result, and the job continues while one of the rules can still hold.
func TestSuccessRulesWithoutFailureRules(t *testing.T) {
	p := newPlay(t, 3, 0)
	p.job.Success = []Rule{{Text: `{"worker":[0]}`, Members: []Member{{0, 0}}}, {Text: `{"worker":[1]}`, Members: []Member{{0, 1}}}}
	p.pass().run(0, 1, 2).exit(2, 1).pass().want(batch.JobRunning, 0).wantReason(batch.JobReplicaFailure, batch.ReasonReplicaFailed)
	p.exit(0, 1).pass().want(batch.JobRunning, 0)
	other := *p
	other.exit(1, 0).pass().want(batch.JobSucceeded, 0)
	p.exit(1, 1).pass().want(batch.JobFailed, 0).wantReason(batch.JobFailedCondition, batch.ReasonSuccessRulesUnsatisfiable)
}

func TestAlwaysRestartsSuccessesUpToTheLimit(t *testing.T) {
	p := newPlay(t, 1, 1)
	p.job.Roles[0].Restart.OnSuccess = true
	p.pass().run(0).exit(0, 0).pass().want(batch.JobPending, 1)
	p.pass().run(0).exit(0, 0).pass().want(batch.JobSucceeded, 1)
}

func TestPauseAndResume(t *testing.T) {
	p := newPlay(t, 2, 3)
	p.job.Roles[0].Resume = Resume{Args: []string{"--from", "checkpoint"}}
	p.pass().run(0, 1).exit(1, 1).pass().pass().run(0, 1).pass().want(batch.JobRunning, 1)
	p.job.Pause = true
	p.pass().want(batch.JobPaused, 1)
	if len(p.pods) != 0 {
		t.Fatalf("%d pods remain", len(p.pods))
	}
	p.after(time.Hour).pass().want(batch.JobPaused, 1)
	p.job.Pause = false
	p.pass().want(batch.JobResuming, 1).wantReason(batch.JobPausedCondition, batch.ReasonResumed)
	if !p.stat.StartTime.Time.Equal(p.now) {
		t.Errorf("startTime %s, want the time of the resume, %s", p.stat.StartTime, p.now)
	}
	if diff := cmp.Diff([]string{"--from", "checkpoint"}, p.pod(0).Spec.Containers[0].Args); diff != "" {
		t.Error(diff)
	}
	p.run(0, 1).pass().want(batch.JobRunning, 1)
	p.exit(0, 1).pass().pass() // a restart after the resume also uses the args of the resume
	if diff := cmp.Diff([]string{"--from", "checkpoint"}, p.pod(0).Spec.Containers[0].Args); diff != "" {
		t.Error(diff)
	}
}

func TestDebugRunHasNoResult(t *testing.T) {
	p := newPlay(t, 1, 0)
	p.job.Debug = true
	p.job.Roles[0].Debug = Debug{Command: []string{"sleep", "inf"}}
	p.job.Roles[0].Template.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
	p.pass()
	c := p.pod(0).Spec.Containers[0]
	if diff := cmp.Diff([]string{"sleep", "inf"}, c.Command); diff != "" || c.LivenessProbe != nil {
		t.Errorf("command %s, probe %v", diff, c.LivenessProbe)
	}
	p.run(0).pass().want(batch.JobRunning, 0).wantReason(batch.JobRunningCondition, batch.ReasonDebugging)
	p.exit(0, 1).pass().want(batch.JobPending, 0).wantReason(batch.JobFailedCondition, batch.ReasonNotFinished)
	p.job.Debug = false
	p.pass().pass().want(batch.JobPending, 0)
	if got := p.pod(0).Spec.Containers[0].Command[0]; got != "train" {
		t.Errorf("the pod runs %q, want train", got)
	}
}

func TestPodOnALostNodeIsReplaced(t *testing.T) {
	p := newPlay(t, 1, 0).pass().run(0).pass()
	asked := metav1.NewTime(p.now)
	p.pod(0).DeletionTimestamp = &asked
	p.after(4 * time.Minute).pass()
	if len(p.plan.Delete) > 0 || p.plan.RequeueAfter != time.Minute {
		t.Fatalf("too early: %+v, requeue %s", p.plan.Delete, p.plan.RequeueAfter)
	}
	if p.after(time.Minute).pass(); len(p.plan.Delete) > 0 {
		t.Fatal("a pod on a ready node was deleted by force")
	}
	p.seen.LostNodes = map[string]bool{"node": true}
	if p.pass(); len(p.plan.Delete) != 1 || !p.plan.Delete[0].Force {
		t.Fatalf("deletions %+v", p.plan.Delete)
	}
	if e := p.plan.Events; len(e) != 1 || e[0].Reason != batch.EventNodeLost || !slices.Equal(e[0].Replicas, []string{"job-worker-0"}) {
		t.Errorf("events %+v", e)
	}
	p.pass().want(batch.JobPending, 0)
	if len(p.pods) != 1 {
		t.Error("the pod was not replaced")
	}
}

func TestTTLDeletesTheJob(t *testing.T) {
	p := newPlay(t, 1, 0)
	ttl := time.Minute
	p.job.TTL = &ttl
	p.pass().run(0).exit(0, 0).pass().want(batch.JobSucceeded, 0)
	if p.plan.RequeueAfter != time.Minute || p.plan.DeleteJob {
		t.Fatalf("requeue %s, delete %t", p.plan.RequeueAfter, p.plan.DeleteJob)
	}
	if p.after(time.Minute).pass(); !p.plan.DeleteJob {
		t.Error("the job was not deleted after its TTL")
	}
}

// TestDeletionOfJobIsNotDelayed verifies that a plan that deletes the job has no MaxDelay, even if its status reports
// only progress.
func TestDeletionOfJobIsNotDelayed(t *testing.T) {
	p := newPlay(t, 2, 0)
	p.job.TTL = new(time.Minute)
	p.job.Success = []Rule{{Text: "{}", Members: []Member{{0, 0}}}}
	p.pass().run(0, 1).pass().exit(0, 0).pass().want(batch.JobSucceeded, 0)
	p.exit(1, 0).after(time.Minute).pass()
	if p.plan.Status == nil || !p.plan.DeleteJob || p.plan.MaxDelay != 0 {
		t.Errorf("status written %t, job deleted %t, delayed for %s", p.plan.Status != nil, p.plan.DeleteJob, p.plan.MaxDelay)
	}
}

func TestCleanUpPolicyDecidesWhichPodsRemain(t *testing.T) {
	for policy, want := range map[batch.CleanUpPolicy]int{batch.CleanUpNone: 3, batch.CleanUpUnfinished: 2, batch.CleanUpAll: 0} {
		t.Run(string(policy), func(t *testing.T) {
			p := newPlay(t, 3, 0)
			p.job.CleanUp = policy
			p.job.Success = []Rule{{Text: "{}", Members: []Member{{0, 0}, {0, 1}}}}
			p.pass().run(0, 1, 2).pass().exit(0, 0).exit(1, 0).pass().want(batch.JobSucceeded, 0)
			if len(p.pods) != want {
				t.Errorf("%d pods remain, want %d", len(p.pods), want)
			}
			if warned := strings.Contains(p.events(), "ReplicasHoldResources"); warned != (policy == batch.CleanUpNone) {
				t.Errorf("events %q", p.events())
			}
		})
	}
}

func TestReplicaPhasesAloneAreCoalesced(t *testing.T) {
	p := newPlay(t, 3, 0).pass()
	p.seen.LastWrite = p.now
	p.run(0).after(300 * time.Millisecond).pass()
	if p.plan.Status != nil || p.plan.RequeueAfter != 700*time.Millisecond {
		t.Fatalf("written %t, requeue %s", p.plan.Status != nil, p.plan.RequeueAfter)
	}
	if p.after(700 * time.Millisecond).pass(); p.plan.Status == nil {
		t.Fatal("not written after a second")
	}
	p.seen.LastWrite = p.now
	if p.run(1, 2).pass(); p.plan.Status == nil || p.stat.Phase != batch.JobRunning {
		t.Fatal("a transition is delayed")
	}
}

// TestProgressMayBeDelayed verifies for how long status writes about replicas that run or have ended may be delayed,
// and that writes about restarts and the end of the job may not be delayed.
func TestProgressMayBeDelayed(t *testing.T) {
	want := func(p *play, wait time.Duration, what string) {
		t.Helper()
		if p.plan.Status == nil || p.plan.MaxDelay != wait {
			t.Fatalf("%s: status %v, may be delayed for %s, want %s", what, p.plan.Status, p.plan.MaxDelay, wait)
		}
	}
	p := newPlay(t, 2, 1).pass()
	p.run(0).after(time.Second).pass()
	want(p, phasesWait, "a replica runs")
	p.run(1).pass()
	want(p, 500*time.Millisecond, "all run")
	p.seen.LastWrite = p.now
	p.exit(1, 0).after(time.Second).pass()
	want(p, endWait, "a replica has ended")
	p.exit(0, 1).pass()
	want(p, 0, "a restart is charged")
	p.after(time.Minute).pass()
	p.run(0).pass()
	want(p, runningWait, "all run again")
	p.exit(0, 0).pass()
	want(p, 0, "the end")
}

func TestLargeStatusIsCutAndLosesNothing(t *testing.T) {
	p := newPlay(t, 100, 5)
	p.cfg.MaxListed = 10
	p.pass()
	for i := range 100 {
		p.run(i)
	}
	p.exit(42, 1).after(time.Minute).pass().pass().run(42).exit(7, 1).after(time.Minute).pass()
	for i := range 60 {
		p.exit(i+20, 0)
	}
	p.after(time.Minute).pass()
	task := p.stat.Tasks[0]
	if len(task.Replicas) != 10 || task.OmittedReplicas != 90 || task.RestartCount != 2 {
		t.Fatalf("%d listed, %d omitted, %d restarts", len(task.Replicas), task.OmittedReplicas, task.RestartCount)
	}
	p.pods = map[string]*corev1.Pod{} // only the status has the results of the deleted pods
	p.after(time.Minute).pass()
	if len(p.pods) != 40 || p.stat.BackoffCount != 2 {
		t.Errorf("%d pods run again, want 40; %d restarts, want 2", len(p.pods), p.stat.BackoffCount)
	}
}

func TestRefusalsAreReportedOnce(t *testing.T) {
	p := newPlay(t, 1, 0).pass()
	p.seen.Refusals = []Refusal{{Object: `pod "job-worker-0"`, Reason: batch.ReasonNameTaken, Message: "it belongs to Deployment \"x\""}}
	p.pods = map[string]*corev1.Pod{}
	p.pass().want(batch.JobPending, 0).wantReason(batch.JobRunningCondition, batch.ReasonNameTaken)
	if p.events() != "NameTaken" {
		t.Errorf("events %q", p.events())
	}
	if p.pods = map[string]*corev1.Pod{}; p.pass().events() != "" {
		t.Errorf("reported again: %q", p.events())
	}
	p.seen.Refusals = nil
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonCreatingReplicas)
}

func TestOverdueStartShowsItsWarning(t *testing.T) {
	p := newPlay(t, 2, 0).pass()
	p.pod(1).Spec.NodeName = "node"
	if p.pass(); p.plan.RequeueAfter != startGrace {
		t.Errorf("the next pass comes after %s, want %s", p.plan.RequeueAfter, startGrace)
	}
	if StartOverdue(p.pod(0)) != (time.Time{}) {
		t.Error("the start of a pod without a node is overdue")
	}
	late := p.pod(1).DeepCopy()
	bound := metav1.NewTime(late.CreationTimestamp.Add(time.Hour))
	late.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: bound}}
	if at := StartOverdue(late); !at.Equal(bound.Add(startGrace)) {
		t.Errorf("the start of a pod that was bound at %s is overdue at %s", bound, at)
	}
	p.seen.Warning = &Warning{Pod: "job-worker-1", Message: "no such volume"}
	p.after(startGrace).pass().wantReason(batch.JobRunningCondition, batch.ReasonNotStarted)
	if p.plan.RequeueAfter != warningRecheck {
		t.Errorf("the next pass comes after %s, want %s", p.plan.RequeueAfter, warningRecheck)
	}
	p.after(time.Minute).pass()
	if n := strings.Count(strings.Join(p.eventReasons, " "), string(batch.ReasonNotStarted)); n != 1 {
		t.Errorf("events %q, want the warning once", p.eventReasons)
	}
	p.seen.Warning = nil
	p.run(0, 1).pass().want(batch.JobRunning, 0)
}

func TestDeletedJobIsLeftAlone(t *testing.T) {
	p := newPlay(t, 1, 0)
	p.job.Deleting = true
	if diff := cmp.Diff(Plan{}, Next(p.job, Seen{Now: start}, Config{})); diff != "" {
		t.Error(diff)
	}
}
