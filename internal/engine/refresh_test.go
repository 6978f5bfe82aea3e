package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestSwitchesAndClocksAskForLivePods verifies that decisions that do not follow from the end of a pod are made with
// pods read from the API server, once, and that other decisions are not.
func TestSwitchesAndClocksAskForLivePods(t *testing.T) {
	minute := time.Minute
	for name, test := range map[string]struct {
		change func(*play)
		want   bool
	}{
		"pause":               {func(p *play) { p.job.Pause = true }, true},
		"debug":               {func(p *play) { p.job.Debug = true }, true},
		"fewer replicas":      {func(p *play) { p.job.Roles[0].Replicas = 1 }, true},
		"more replicas":       {func(p *play) { p.job.Roles[0].Replicas = 3 }, true},
		"deadline":            {func(p *play) { p.job.Deadline = &minute; p.after(time.Minute) }, true},
		"maximum of a queue":  {func(p *play) { takeForAge(p.pod(0)) }, true},
		"deadline to come":    {func(p *play) { p.job.Deadline = &minute }, false},
		"failure":             {func(p *play) { p.exit(0, 1) }, false},
		"success":             {func(p *play) { p.exit(0, 0).exit(1, 0) }, false},
		"restart":             {func(p *play) { p.exit(1, 1) }, false},
		"end of the job past": {func(p *play) { p.exit(0, 0).pass().after(time.Hour); p.job.Pause = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTraining(t, 2, 1)
			p.job.Elastic = &Elastic{Min: 1, Max: 4}
			p.pass().run(0, 1).pass()
			test.change(p)
			if p.pass(); p.refreshed != test.want {
				t.Errorf("the pass asked for live pods: %t", p.refreshed)
			}
			if p.pass(); p.refreshed {
				t.Error("the pass asks for live pods again")
			}
		})
	}
}

func takeForAge(pod *corev1.Pod) {
	now := metav1.NewTime(start)
	pod.DeletionTimestamp = &now
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: string(batch.ReasonQueueMaxDuration)}}
}

// TestDeletionsOfPodsThatRunBindTheirVersion verifies that the deletion of a pod that runs has the resourceVersion of
// the pod as a precondition, so that a pod that has ended in the meantime is not deleted. The deletion of an ended pod
// has no such precondition.
func TestDeletionsOfPodsThatRunBindTheirVersion(t *testing.T) {
	p := newPlay(t, 2, 1).pass().run(0, 1).pass()
	p.pod(0).ResourceVersion, p.pod(1).ResourceVersion = "7", "8"
	p.exit(1, 1)
	p.job.Pause = true
	p.pass()
	got := map[string]string{}
	for _, d := range p.plan.Delete {
		got[d.Name] = d.ResourceVersion
	}
	if len(got) != 2 || got["job-worker-0"] != "7" || got["job-worker-1"] != "" {
		t.Errorf("deletions %v; want the running pod in version 7, the ended one in any version", got)
	}
}

// TestEndBeforeDebugSwitchCounts verifies that a job whose pods ended before the operator observed the switch to debug
// mode has finished.
func TestEndBeforeDebugSwitchCounts(t *testing.T) {
	p := newPlay(t, 2, 0).pass().run(0, 1).pass().exit(0, 0).exit(1, 0)
	p.job.Debug = true
	p.pass().want(batch.JobSucceeded, 0)
	p = newPlay(t, 2, 0).pass().run(0, 1).pass().exit(0, 0).exit(1, 4)
	p.job.Debug = true
	p.pass().want(batch.JobFailed, 0)
}

// TestDebugCommandThatEndsIsReplaced verifies that a debug command that ends is replaced without charge, first
// immediately and then with back-off.
func TestDebugCommandThatEndsIsReplaced(t *testing.T) {
	p := newPlay(t, 1, 0)
	p.job.Debug = true
	p.pass().run(0).pass().want(batch.JobRunning, 0)
	for i, code := range []int32{137, 0} {
		first := p.exit(0, code).pod(0).UID
		if i > 0 {
			if p.pass(); p.plan.RequeueAfter != 10*time.Second || p.pod(0).UID != first {
				t.Fatalf("the second replacement comes after %s", p.plan.RequeueAfter)
			}
			p.after(10 * time.Second)
		}
		if p.pass().pass(); p.pod(0).UID == first {
			t.Fatal("the pod was not replaced")
		}
		p.run(0).pass().want(batch.JobRunning, 0)
	}
	if got := p.stat.Tasks[0].Replicas[0]; got.Attempt != 2 || got.RestartCount != 0 {
		t.Errorf("attempt %d with %d restarts, want 2 and 0", got.Attempt, got.RestartCount)
	}
}

// TestDebugWaitsForContest verifies that a success that waits for failures of the same time survives a switch to debug
// mode.
func TestDebugWaitsForContest(t *testing.T) {
	p := contest(t).exit(0, 0).pass()
	p.job.Debug = true
	p.after(time.Second/2).pass().want(batch.JobRunning, 0)
	p.after(time.Second).pass().want(batch.JobSucceeded, 0)
}

// TestContestWinsOverDeadline verifies that a deadline that passes while a success waits for failures of the same time
// does not undo the success.
func TestContestWinsOverDeadline(t *testing.T) {
	p := contest(t)
	minute := time.Minute
	p.job.Deadline = &minute
	p.after(minute-time.Second/2).exit(0, 0).pass().want(batch.JobRunning, 0)
	p.after(time.Second/2).pass().want(batch.JobRunning, 0)
	p.after(time.Second/2).pass().want(batch.JobSucceeded, 0)
}

// TestPauseForgetsNoPodThatTheCacheLacks verifies that a paused job reads its pods from the API server before it
// forgets a pod of the status that its cache has never shown.
func TestPauseForgetsNoPodThatTheCacheLacks(t *testing.T) {
	p := newPlay(t, 1, 3).pass().run(0).after(2*time.Second).pass().want(batch.JobRunning, 0)
	p.job.Pause = true
	pod := p.pod(0)
	p.pass().want(batch.JobPaused, 0)
	for name, unconfirmed := range map[string]bool{"the cache has shown its deletion": false, "the cache has never shown it": true} {
		t.Run(name, func(t *testing.T) {
			q := *p
			q.t, q.seen.Unconfirmed = t, map[types.UID]bool{pod.UID: unconfirmed}
			if q.pass(); q.refreshed != unconfirmed {
				t.Errorf("the pass reads live pods: %t", q.refreshed)
			}
		})
	}
}
