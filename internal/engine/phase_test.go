package engine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// wantRunning checks the Running condition and its reason.
func (p *play) wantRunning(yes bool, reason batch.Reason) *play {
	p.t.Helper()
	if conditionTrue(p.stat, batch.JobRunningCondition) != yes {
		p.t.Fatalf("conditions %+v, want Running %t", p.stat.Conditions, yes)
	}
	return p.wantReason(batch.JobRunningCondition, reason)
}

// wantRestarting checks that the job waits for replicas and has the given number of restarts.
func (p *play) wantRestarting(restarts int32) *play {
	p.t.Helper()
	phase := p.stat.Phase
	if phase != batch.JobRunning {
		phase = batch.JobPending
	}
	if p.want(phase, restarts); conditionTrue(p.stat, batch.JobRunningCondition) {
		p.t.Fatalf("all replicas run: %+v", p.stat.Conditions)
	}
	return p
}

func TestPhaseWhileReplicasRestart(t *testing.T) {
	p := newPlay(t, 2, 9).pass().want(batch.JobPending, 0).run(0).after(2*time.Second).pass().want(batch.JobPending, 0)
	p.run(1).pass().want(batch.JobRunning, 0).wantRunning(true, batch.ReasonReplicasRunning)

	// The other replica still runs.
	p.exit(1, 1).pass().want(batch.JobRunning, 1).wantRunning(false, batch.ReasonRestarting)
	p.pass().run(1).pass().want(batch.JobRunning, 1).wantRunning(true, batch.ReasonReplicasRunning)
	if n := strings.Count(strings.Join(p.eventReasons, " "), string(batch.ReasonReplicasRunning)); n != 2 {
		t.Errorf("events %q, want ReplicasRunning twice", p.eventReasons)
	}

	p.exit(0, 1).exit(1, 1).after(time.Minute).pass().want(batch.JobPending, 2) // no replica runs
	p.pass().run(0).after(2*time.Second).pass().want(batch.JobPending, 2)
	p.run(1).pass().want(batch.JobRunning, 2)
}

func TestPhaseAfterAResume(t *testing.T) {
	p := newPlay(t, 2, 9).pass().run(0, 1).pass()
	p.job.Pause = true
	p.pass().pass().want(batch.JobPaused, 0)
	p.job.Pause = false
	p.pass().want(batch.JobResuming, 0).run(0).after(2*time.Second).pass().want(batch.JobResuming, 0)
	p.run(1).pass().want(batch.JobRunning, 0).exit(0, 1).pass().want(batch.JobRunning, 1).wantRunning(false, batch.ReasonRestarting)
}

func TestPhaseInDebugMode(t *testing.T) {
	p := newPlay(t, 2, 9)
	p.job.Debug = true
	p.pass().run(0, 1).pass().want(batch.JobRunning, 0).wantRunning(true, batch.ReasonDebugging)
	p.exit(1, 1).pass().want(batch.JobRunning, 0).wantRunning(false, batch.ReasonRestarting)
	p.exit(0, 0).after(2*time.Second).pass().want(batch.JobPending, 0).wantRunning(false, batch.ReasonRestarting)
}

func TestElasticJobRunsWithWhatItNeeds(t *testing.T) {
	p := newTraining(t, 3, 9)
	p.job.Elastic = &Elastic{Min: 2, Max: 9}
	p.pass().run(0, 1, 2).pass().exit(1, 1).pass().want(batch.JobRunning, 1).wantRunning(true, batch.ReasonReplicasRunning)
	p.exit(2, 1).pass().want(batch.JobRunning, 1).wantRunning(false, batch.ReasonRestarting)
}

func TestUnknownReplica(t *testing.T) {
	p := newPlay(t, 2, 0).pass().run(0, 1).pass()
	p.pod(1).Status.Phase = corev1.PodUnknown
	p.pass().want(batch.JobUnknown, 0).wantReason(batch.JobRunningCondition, batch.ReasonReplicaUnknown)
	if got := condition(p.stat, batch.JobRunningCondition).Message; got != "The state of 1 replica cannot be obtained." {
		t.Error(got)
	}
	p.pod(1).Status.Phase = corev1.PodRunning
	p.pass().want(batch.JobRunning, 0)
}

// TestReplicasOfAJobCreatedPausedArePending verifies that replicas that never had a pod are pending and not deleted,
// and that their first pods are attempt 0.
func TestReplicasOfAJobCreatedPausedArePending(t *testing.T) {
	p := newPlay(t, 2, 0)
	p.job.Pause = true
	for range 3 {
		p.after(time.Minute).pass().want(batch.JobPaused, 0).wantReplica(0, batch.ReplicaPending, "")
	}
	if p.stat.Aggregate != (batch.Aggregate{Pending: 2}) {
		t.Errorf("aggregate %+v, want 2 pending", p.stat.Aggregate)
	}
	p.job.Pause = false
	p.pass().run(0, 1).pass().want(batch.JobRunning, 0)
	if got := p.pod(0).Labels[batch.LabelReplicaAttempt]; got != "0" {
		t.Errorf("the first pod is attempt %s", got)
	}
	p.job.Pause = true
	p.pass().pass().wantReplica(0, batch.ReplicaDeleted, "")
}

// TestRefusalsEndWithTheRunMode verifies that refusals from one run mode are not reported in the next one.
func TestRefusalsEndWithTheRunMode(t *testing.T) {
	p := newPlay(t, 1, 0).pass()
	p.pods = map[string]*corev1.Pod{}
	p.seen.Refusals = []Refusal{{Object: `pod "job-worker-0"`, Reason: batch.ReasonCreateRefused, Message: "exceeded quota"}}
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonCreateRefused)
	p.pods = map[string]*corev1.Pod{}
	p.job.Pause = true
	p.pass().wantReason(batch.JobRunningCondition, batch.ReasonPaused)
	p.job.Pause = false
	p.pass().want(batch.JobResuming, 0).wantReason(batch.JobRunningCondition, batch.ReasonCreatingReplicas)
}

// TestQueueMaxDurationSparesJobsWhoseSidecarRuns verifies that a queue that ends a pod because of its age does not end
// the job if only the pod's sidecar still runs.
func TestQueueMaxDurationSparesJobsWhoseSidecarRuns(t *testing.T) {
	p := newSidecars(t, 0).exitMain(1, 0).after(2 * time.Second)
	p.pod(1).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(p.now), Reason: string(batch.ReasonQueueMaxDuration), Message: "too old"}}
	p.pass().want(batch.JobRunning, 0)
}

// TestPodCreatedAfterTheEndIsDeleted verifies that a pod that was created after its job had finished is deleted,
// although the clean-up policy keeps all pods. An operator creates such a pod if it does not know yet that it is no
// longer the leader. Pods that are older, or that the status names, are kept.
func TestPodCreatedAfterTheEndIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		created time.Duration // after the end
		known   bool
		want    int
	}{
		"after the end":                {created: 2 * time.Second, want: 1},
		"within the second of the end": {want: 1},
		"before the end":               {created: -2 * time.Second},
		"known at the end":             {created: 2 * time.Second, known: true}, // the clock of the API server is ahead
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, 2, 0)
			p.pass().after(10 * time.Second)
			late := p.pod(1)
			if late.UID = "late"; !test.known {
				delete(p.pods, late.Name)
			}
			late.CreationTimestamp = metav1.NewTime(p.now.Add(test.created))
			p.exit(0, 1).pass().want(batch.JobFailed, 0)
			before := p.stat
			p.pods[late.Name] = late
			for range 2 { // the first deletion may fail
				p.after(2 * time.Second).pass()
				if len(p.plan.Delete) != test.want {
					t.Errorf("%d pods are deleted, want %d", len(p.plan.Delete), test.want)
				}
				p.pods[late.Name] = late
			}
			if test.want > 0 && p.stat != before {
				t.Errorf("the status of the finished job changed to %+v", p.stat)
			}
		})
	}
}
