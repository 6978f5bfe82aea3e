package sim

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestRestartDelaysDoNotDependOnClocks verifies the delays of restarts on nodes with wrong clocks. It runs a job whose
// only replica fails repeatedly. In some runs a new leader starts within each delay.
func TestRestartDelaysDoNotDependOnClocks(t *testing.T) {
	const (
		pod     = jobName + "-worker-0"
		runs    = 3 * time.Second // how long each pod runs
		leaders = 4 * time.Second // the time from the end of a pod to the start of a new leader
	)
	policy := batch.RestartPolicy{Policy: batch.RestartOnFailure, Limit: new(int32(4))}
	delays := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second}
	for name, c := range map[string]struct {
		skew      time.Duration
		handovers bool
		// early and late are the largest allowed deviations of the delays from those with a correct clock.
		early, late time.Duration
	}{
		"right":                    {0, false, time.Second, time.Second},
		"right, new leaders":       {0, true, time.Second, time.Second},
		"ahead":                    {time.Hour, false, 0, time.Second},
		"ahead, new leaders":       {time.Hour, true, 0, leaders + time.Second},
		"behind":                   {-time.Hour, false, runs + time.Second, time.Second},
		"behind, new leaders":      {-time.Hour, true, runs + time.Second, time.Second},
		"a little ahead":           {3 * time.Second, false, 0, time.Second},
		"a day ahead, new leaders": {24 * time.Hour, true, 0, leaders + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			e := &explorer{Exploration: Exploration{Kind: kindNamed("GenericJob"), Job: generic(1, policy, nil), Stage: Submitted}}
			play := e.replay(nil)
			w := play.w
			w.skew = c.skew
			catchUp := func() {
				play.leader.sync(true)
				for play.leader.due() {
					play.pass(step{})
					play.leader.sync(true)
				}
			}
			catchUp()
			for i, delay := range delays {
				play.takeOf(w.pods[pod], step{verb: starts})
				catchUp()
				w.now = w.now.Add(runs)
				play.takeOf(w.pods[pod], step{verb: exits, n: 1})
				ended := w.now
				catchUp()
				if c.handovers && delay > 0 {
					w.now = ended.Add(leaders)
					play.lead(newCache(w, 0))
					catchUp()
				}
				for range 100 { // passes until the next pod exists
					if p := w.pods[pod]; p != nil && p.Status.Phase == corev1.PodPending || play.leader.wake.IsZero() {
						break
					}
					play.pass(step{})
					play.leader.sync(true)
				}
				if len(w.past[pod]) != i+2 {
					t.Fatalf("%d pods, want %d", len(w.past[pod]), i+2)
				}
				if took := w.last(pod).created.Sub(ended); took < delay-c.early || took > delay+c.late {
					t.Errorf("restart %d came %s after the end, want %s", i+1, took, delay)
				}
			}
			if len(w.errs) > 0 {
				t.Error(strings.Join(w.errs, "; "))
			}
		})
	}
}
