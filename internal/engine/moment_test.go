package engine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// contest starts a job that succeeds with worker 0 and fails with worker 1.
func contest(t *testing.T) *play {
	p := newPlay(t, 2, 0)
	p.job.Success = []Rule{{Text: `{"worker":[0]}`, Members: []Member{{0, 0}}}}
	p.job.Failure = []Rule{{Text: `{"worker":[1]}`, Members: []Member{{0, 1}}}}
	return p.pass().run(0, 1).pass()
}

// TestEndsAreOrderedByTheirTimes verifies that the times at which the pods ended decide, not the times or the order of
// the observations.
func TestEndsAreOrderedByTheirTimes(t *testing.T) {
	for name, test := range map[string]struct {
		later time.Duration // the time from the success to the failure
		want  batch.JobPhase
	}{
		"at once":                        {0, batch.JobFailed},
		"failure a second later":         {time.Second, batch.JobFailed},
		"failure earlier":                {-time.Minute, batch.JobFailed},
		"failure more than a second off": {2 * time.Second, batch.JobSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			p := contest(t).after(time.Hour).exit(0, 0)
			p.now = p.now.Add(test.later)
			p.exit(1, 1).after(2*time.Hour).pass().want(test.want, 0)
		})
	}
}

// TestSuccessAwaitsFailuresOfItsMoment verifies that a success waits one second for unseen failures of the same time,
// and that the pods are then read from the API server. A failure that is observed in the meantime wins.
func TestSuccessAwaitsFailuresOfItsMoment(t *testing.T) {
	p := contest(t).exit(0, 0).after(300*time.Millisecond).pass().want(batch.JobRunning, 0)
	if !p.plan.Contested || p.plan.RequeueAfter != time.Second {
		t.Fatalf("contested %t, requeued after %s", p.plan.Contested, p.plan.RequeueAfter)
	}
	t.Run("no replica has failed", func(t *testing.T) {
		q := *p
		q.t = t
		q.after(999*time.Millisecond).pass().want(batch.JobRunning, 0)
		q.after(time.Millisecond).pass().want(batch.JobSucceeded, 0)
		if !q.refreshed {
			t.Error("the verdict is based on a cache")
		}
	})
	t.Run("a replica has failed", func(t *testing.T) {
		p.t = t
		p.exit(1, 1).pass().want(batch.JobFailed, 0)
	})
}

// TestLateSuccessAwaitsLateFailures verifies that a success that was observed late waits longer for failures that may
// be observed equally late, up to a bound.
func TestLateSuccessAwaitsLateFailures(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{
		2 * time.Second: time.Second, 4 * time.Second: 3 * time.Second, time.Hour: 5 * time.Second,
	} {
		p := contest(t).exit(0, 0).after(late).pass().want(batch.JobRunning, 0)
		if p.plan.RequeueAfter != want {
			t.Errorf("a success that is seen after %s waits for %s, want %s", late, p.plan.RequeueAfter, want)
		}
		p.after(want).pass().want(batch.JobSucceeded, 0)
	}
}

// TestSuccessWaitsForNothingElse verifies that the job succeeds immediately if no failure rule could hold.
func TestSuccessWaitsForNothingElse(t *testing.T) {
	for name, change := range map[string]func(*play){
		"all replicas of its failure rule succeeded": func(p *play) { p.exit(1, 0) },
		"its failure rule needs the succeeded replica": func(p *play) {
			p.job.Failure = []Rule{{Text: "{}", Members: []Member{{0, 0}, {0, 1}}}}
		},
		"every replica has succeeded":        func(p *play) { p.job.Success, p.job.Failure = nil, nil; p.exit(1, 0) },
		"training job, whose master decides": func(p *play) { p.job.Failure = p.job.Success },
	} {
		t.Run(name, func(t *testing.T) {
			p := contest(t).exit(0, 0)
			change(p)
			p.pass().want(batch.JobSucceeded, 0)
			if p.refreshed {
				t.Error("the pass asks for live pods")
			}
		})
	}
}

// TestContestedJobStartsNothing verifies that a job creates no pods while its success waits for failures of the same
// time, because the failure of a new pod would come later.
func TestContestedJobStartsNothing(t *testing.T) {
	p := contest(t)
	delete(p.pods, p.pod(1).Name) // a user deletes the pod
	p.exit(0, 0).pass()
	if !p.plan.Contested || len(p.plan.Pods) > 0 {
		t.Fatalf("contested %t, %d pods are created", p.plan.Contested, len(p.plan.Pods))
	}
	p.after(time.Second).pass().want(batch.JobSucceeded, 0)
}

// TestFailureWithoutATimeIsOrderedByWhenItWasSeen verifies that, if a pod does not show when it failed (for example
// because its kubelet has removed the containers), the failure counts as no earlier than reportLag before the last pass
// that did not show it.
func TestFailureWithoutATimeIsOrderedByWhenItWasSeen(t *testing.T) {
	for name, test := range map[string]struct {
		seenAfter time.Duration // the time from the success to the last pass that shows neither end
		want      batch.JobPhase
	}{
		"long after the success": {10 * time.Second, batch.JobSucceeded},
		"perhaps before it":      {time.Second, batch.JobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			p := contest(t).after(time.Minute)
			won := p.pod(0)
			p.exit(0, 0)
			hidden := *won
			delete(p.pods, won.Name)
			p.pods[won.Name] = running(&hidden)
			p.after(test.seenAfter).pass().want(batch.JobRunning, 0)
			p.pods[won.Name] = won
			lost := p.pod(1)
			lost.Status.Phase, lost.Status.Reason = corev1.PodFailed, "Evicted"
			lost.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
			p.after(2*time.Second).pass().want(test.want, 0)
		})
	}
}

// running returns a copy of a pod in its state before it ended.
func running(pod *corev1.Pod) *corev1.Pod {
	before := pod.DeepCopy()
	before.Status.Phase = corev1.PodRunning
	before.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}}
	return before
}

// TestEarliestRuleDecides verifies that, if several rules hold, the one that held first decides.
func TestEarliestRuleDecides(t *testing.T) {
	p := newPlay(t, 3, 0)
	p.job.Success = []Rule{{Text: "late", Members: []Member{{0, 0}, {0, 1}}}, {Text: "early", Members: []Member{{0, 0}}}}
	p.job.Failure = []Rule{{Text: "{}", Members: []Member{{0, 2}}}}
	p.pass().run(0, 1, 2).exit(0, 0).after(10*time.Second).exit(2, 1).after(10*time.Second).exit(1, 0).pass().want(batch.JobSucceeded, 0)
	if got := condition(p.stat, batch.JobCompleted).Message; !strings.Contains(got, "early") {
		t.Errorf("the message does not name the rule: %q", got)
	}
}
