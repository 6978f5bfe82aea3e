package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// reading starts a job whose ended pods remain for 3 s, so that their logs can be read.
func reading(t *testing.T, replicas int) *play {
	p := newPlay(t, replicas, 3)
	p.cfg.LogReadTime = 3 * time.Second
	return p.pass()
}

// staysFor verifies that the next pass is due after d, and that the pod of replica 0 exists until then and no longer.
func (p *play) staysFor(rank int, d time.Duration) {
	p.t.Helper()
	uid := p.pod(rank).UID
	if p.plan.RequeueAfter != d {
		p.t.Errorf("the next pass is in %s, want %s", p.plan.RequeueAfter, d)
	}
	if p.after(d - time.Millisecond).pass(); p.pod(rank).UID != uid {
		p.t.Errorf("the pod is deleted before %s", d)
	}
	p.after(time.Millisecond).pass()
	if pod := p.pods["job-worker-0"]; pod != nil && pod.UID == uid {
		p.t.Errorf("the pod remains after %s", d)
	}
}

func TestEndedPodsStayUntilTheirLogsAreRead(t *testing.T) {
	t.Run("before a restart", func(t *testing.T) {
		p := reading(t, 1).run(0).pass().exit(0, 1).pass().want(batch.JobPending, 0)
		p.staysFor(0, 3*time.Second)
		p.want(batch.JobPending, 1)
	})
	t.Run("before a restart with a longer delay", func(t *testing.T) {
		p := reading(t, 1).run(0).pass().exit(0, 1).pass().after(3*time.Second).pass().pass().run(0).pass().exit(0, 1).pass()
		p.staysFor(0, 10*time.Second)
	})
	t.Run("before a restart, counted from when the end is seen", func(t *testing.T) {
		p := reading(t, 1).run(0).pass().exit(0, 1).after(2500 * time.Millisecond).pass()
		p.staysFor(0, 3*time.Second)
		p.want(batch.JobPending, 1)
	})
	t.Run("before a restart of all replicas", func(t *testing.T) {
		p := reading(t, 2)
		p.job.Roles[0].Restart.All = true
		p.run(0, 1).pass().exit(0, 1).pass().staysFor(0, 3*time.Second)
	})
	t.Run("before clean-up", func(t *testing.T) {
		p := reading(t, 1)
		p.job.CleanUp = batch.CleanUpAll
		p.run(0).pass().exit(0, 0).pass().want(batch.JobSucceeded, 0).staysFor(0, 3*time.Second)
	})
	t.Run("before clean-up, counted from when the end is seen", func(t *testing.T) {
		p := reading(t, 1)
		p.job.CleanUp = batch.CleanUpAll
		p.run(0).pass().exit(0, 0).after(2500*time.Millisecond).pass().want(batch.JobSucceeded, 0).staysFor(0, 3*time.Second)
	})
	t.Run("before the end of the TTL", func(t *testing.T) {
		p := reading(t, 1)
		p.job.TTL = new(time.Duration)
		p.run(0).pass().exit(0, 0).pass().pass()
		if p.plan.DeleteJob || p.plan.RequeueAfter != 3*time.Second {
			t.Fatalf("deleted %t, requeue %s", p.plan.DeleteJob, p.plan.RequeueAfter)
		}
		if p.after(3 * time.Second).pass(); !p.plan.DeleteJob {
			t.Error("the job is not deleted")
		}
	})
}

// TestOtherDeletionsDoNotWaitForLogs verifies that no deletion waits for the log of a pod that runs or never ran, and
// that no deletion on behalf of a user waits.
func TestOtherDeletionsDoNotWaitForLogs(t *testing.T) {
	for name, gone := range map[string]func(*play){
		"clean-up of pods that run": func(p *play) {
			p.job.CleanUp = batch.CleanUpUnfinished
			p.job.Success = []Rule{{Text: "{}", Members: []Member{{0, 1}}}}
			p.exit(1, 0)
		},
		"a pause":            func(p *play) { p.exit(0, 1).job.Pause = true },
		"fewer replicas":     func(p *play) { p.job.Roles[0].Replicas = 0; p.exit(0, 1) },
		"a change of mode":   func(p *play) { p.job.Debug = true },
		"one that never ran": func(p *play) { p.pod(0).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"} },
	} {
		t.Run(name, func(t *testing.T) {
			p := reading(t, 2).run(0, 1).pass()
			uid := p.pod(0).UID
			gone(p)
			p.pass()
			if pod := p.pods["job-worker-0"]; pod != nil && pod.UID == uid {
				t.Errorf("the pod remains, the next pass is in %s", p.plan.RequeueAfter)
			}
		})
	}
}
