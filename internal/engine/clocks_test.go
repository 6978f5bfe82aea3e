package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// skew shifts the times that the node wrote into a pod's status as if the clock of the node were ahead by skew.
func (p *play) skew(rank int, skew time.Duration) *play {
	pod := p.pod(rank)
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil {
			t.StartedAt, t.FinishedAt = metav1.NewTime(t.StartedAt.Add(skew)), metav1.NewTime(t.FinishedAt.Add(skew))
		}
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(skew))
	}
	return p
}

// newLeader makes the next pass run as in a new process, which has not observed the job before.
func (p *play) newLeader() *play {
	p.seen.LastPass, p.seen.Ends = time.Time{}, nil
	return p
}

// secondEnd starts a job whose only replica fails once. Two seconds after the new pod has started, secondEnd calls end,
// which ends that pod. The next restart then has a delay of 10 s.
func secondEnd(t *testing.T, end func(*play)) *play {
	p := newPlay(t, 1, 100).pass().run(0).pass().exit(0, 1).pass().want(batch.JobPending, 1).after(time.Second).pass().run(0).pass()
	p.after(2 * time.Second)
	end(p)
	return p
}

var (
	skews = map[string]time.Duration{"right": 0, "5 min ahead": 5 * time.Minute, "5 min behind": -5 * time.Minute,
		"a day ahead": 24 * time.Hour, "a day behind": -24 * time.Hour}
	backoffEnds = map[string]func(*play){
		"failure": func(p *play) { p.exit(0, 1) },
		"disruption": func(p *play) {
			p.exit(0, 143).pod(0).Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(p.now)}}
		},
		"rejection by the kubelet": func(p *play) {
			p.pod(0).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(p.now)}}}
		},
	}
)

// TestNodeClocksDoNotChangeBackoff verifies that a wrong node clock makes the delay of a restart no longer, and shorter
// by at most the 2 s for which the pod ran.
func TestNodeClocksDoNotChangeBackoff(t *testing.T) {
	for clock, skew := range skews {
		for name, end := range backoffEnds {
			t.Run(name+"/"+clock, func(t *testing.T) {
				p := secondEnd(t, end).skew(0, skew).pass().want(batch.JobPending, 1)
				if d := p.plan.RequeueAfter; d > 10*time.Second || d < 8*time.Second {
					t.Fatalf("the next pass is in %s, want 10 s, or up to the 2 s less that the pod ran", d)
				}
				uid := p.pod(0).UID
				p.after(7 * time.Second).pass()
				if p.pods["job-worker-0"] == nil || p.pod(0).UID != uid {
					t.Fatal("the pod is replaced before the delay is over")
				}
				p.after(3 * time.Second).pass().pass()
				if p.pod(0).UID == uid {
					t.Error("the pod is not replaced after the delay")
				}
			})
		}
	}
}

// TestNodeClockBehindDoesNotSkipBackoff verifies that, if a pass has observed the pod running, a node clock that is
// behind shortens the delay by at most reportLag plus the time since that pass.
func TestNodeClockBehindDoesNotSkipBackoff(t *testing.T) {
	p := secondEnd(t, func(p *play) { p.after(9*time.Minute).pass().after(time.Second).exit(0, 1) })
	p.skew(0, -5*time.Minute).pass().want(batch.JobPending, 1)
	if p.plan.RequeueAfter != 10*time.Second-time.Second-reportLag {
		t.Errorf("the next pass is in %s", p.plan.RequeueAfter)
	}
}

// TestLateReportDoesNotProlongBackoff verifies that the delay counts from the end of the pod even if a pass still
// observes the pod running a second later.
func TestLateReportDoesNotProlongBackoff(t *testing.T) {
	p := secondEnd(t, func(p *play) { p.exit(0, 1) })
	ended := p.pod(0).Status
	p.pod(0).Status = corev1.PodStatus{Phase: corev1.PodRunning}
	p.after(time.Second).pass()
	p.pod(0).Status = ended
	p.after(time.Second).pass().want(batch.JobPending, 1)
	if p.plan.RequeueAfter != 8*time.Second {
		t.Errorf("the next pass is in %s, want 8 s", p.plan.RequeueAfter)
	}
}

// TestNodeClocksDoNotDelayTheFirstRestart verifies that the first restart is immediate, whatever the node's clock
// shows.
func TestNodeClocksDoNotDelayTheFirstRestart(t *testing.T) {
	for clock, skew := range skews {
		t.Run(clock, func(t *testing.T) {
			newPlay(t, 1, 100).pass().run(0).pass().exit(0, 1).skew(0, skew).pass().want(batch.JobPending, 1)
		})
	}
}

// TestNewLeaderKeepsBackoff verifies that a leader that did not see the end counts the delay from the node's time, but
// from no later than its own first pass and from no earlier than the creation of the pod.
func TestNewLeaderKeepsBackoff(t *testing.T) {
	for _, c := range []struct {
		clock string
		want  time.Duration // the delay that remains for a leader that starts 4 s after the end
	}{
		{"right", 6 * time.Second}, {"5 min ahead", 10 * time.Second}, {"5 min behind", 4 * time.Second},
		{"a day ahead", 10 * time.Second}, {"a day behind", 4 * time.Second},
	} {
		t.Run(c.clock, func(t *testing.T) {
			p := secondEnd(t, backoffEnds["failure"]).skew(0, skews[c.clock]).pass().after(4 * time.Second).newLeader().pass()
			if p.plan.RequeueAfter != c.want {
				t.Errorf("the delay is %s more, want %s", p.plan.RequeueAfter, c.want)
			}
			p.after(c.want).pass().want(batch.JobPending, 2)
		})
	}
}

// TestOwnClockDoesNotChangeBackoff verifies that the delay is no longer, and at most 4 s shorter, if the clock of this
// process differs from all others.
func TestOwnClockDoesNotChangeBackoff(t *testing.T) {
	for clock, skew := range skews {
		t.Run(clock, func(t *testing.T) {
			p := secondEnd(t, backoffEnds["failure"])
			p.pod(0).CreationTimestamp = metav1.NewTime(p.pod(0).CreationTimestamp.Add(-skew))
			p.skew(0, -skew).pass()
			if d := p.plan.RequeueAfter; d > 10*time.Second || d < 8*time.Second-reportLag {
				t.Errorf("the next pass is in %s, want 10 s, or up to 4 s less: the pod ran for 2 s, and its end may be reported late", d)
			}
		})
	}
}

// TestBackoffSurvivesManyPasses verifies that passes between the end and the restart do not change the delay, and that
// the end is forgotten after the restart.
func TestBackoffSurvivesManyPasses(t *testing.T) {
	p := secondEnd(t, backoffEnds["failure"]).skew(0, time.Hour).pass()
	for range 9 {
		p.after(time.Second).pass().want(batch.JobPending, 1)
	}
	p.after(time.Second).pass().want(batch.JobPending, 2).pass()
	if len(p.plan.Ends) > 0 {
		t.Errorf("the ends %v are remembered after the restart", p.plan.Ends)
	}
}

// TestNodeClocksDoNotKeepSidecars verifies that sidecars are stopped on time, or at most reportLag early, whatever the
// node's clock shows.
func TestNodeClocksDoNotKeepSidecars(t *testing.T) {
	for clock, skew := range skews {
		t.Run(clock, func(t *testing.T) {
			p := newSidecars(t, 0)
			p.after(time.Minute).pass().exitMain(1, 0).skew(1, skew).pass().wantReplica(1, batch.ReplicaSucceeded, "")
			if d := p.plan.RequeueAfter; len(p.plan.Stop) > 0 || d > sidecarGrace || d < sidecarGrace-reportLag {
				t.Fatalf("stopped are %+v, the next pass is in %s", p.plan.Stop, d)
			}
			p.after(p.plan.RequeueAfter).pass().stop(1)
		})
	}
}

// TestSlowNodeClocksProveNoSuccess verifies that a pod that exits with 0 after its deletion or preemption has not
// succeeded, even if its node, whose clock is behind, reports an earlier exit. An exit before an eviction by the
// kubelet still counts, because both times come from the same clock.
func TestSlowNodeClocksProveNoSuccess(t *testing.T) {
	const skew = -5 * time.Minute
	preempted := func(p *play, reason string) {
		p.pod(0).Status.Conditions = append(p.pod(0).Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
			Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(p.now)})
	}
	for name, c := range map[string]struct {
		end  func(*play)
		want batch.JobPhase
	}{
		"deletion, then exit": {func(p *play) {
			at, grace := metav1.NewTime(p.now.Add(30*time.Second)), int64(30)
			p.pod(0).DeletionTimestamp, p.pod(0).DeletionGracePeriodSeconds = &at, &grace
			p.after(time.Second).exit(0, 0).skew(0, skew)
		}, batch.JobPending},
		"preemption, then exit": {func(p *play) {
			p.after(time.Second).exit(0, 0).skew(0, skew).after(-time.Second)
			preempted(p, corev1.PodReasonPreemptionByScheduler)
		}, batch.JobPending},
		"exit, then eviction by the kubelet": {func(p *play) {
			p.exit(0, 0).after(2 * time.Second)
			preempted(p, corev1.PodReasonTerminationByKubelet)
			p.skew(0, skew)
		}, batch.JobSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTraining(t, 1, 3).pass().run(0).pass().want(batch.JobRunning, 0).after(time.Minute)
			p.job.Roles[0].MainDecides = true
			c.end(p)
			p.after(2*time.Second).pass().want(c.want, 0)
		})
	}
}
