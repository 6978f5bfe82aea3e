package engine

import (
	"testing"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestRunSecondsCountOnlyRunningTime verifies that only the time for which the job ran counts, across a pause and a
// debug run, and also if no pass observed the job running.
func TestRunSecondsCountOnlyRunningTime(t *testing.T) {
	want := func(p *play, seconds int64) *play {
		t.Helper()
		if p.stat.RunSeconds != seconds {
			t.Fatalf("%d seconds, want %d; phase %s", p.stat.RunSeconds, seconds, p.stat.Phase)
		}
		return p
	}
	p := newPlay(t, 2, 3).pass().after(time.Hour) // the job waits in a queue
	p.run(0, 1).pass().want(batch.JobRunning, 0)
	want(p.after(time.Minute).pass(), 0) // the run continues
	p.job.Pause = true
	want(p.after(time.Second).pass(), 61)
	want(p.after(2*time.Hour).pass(), 61)
	p.job.Pause = false
	p.pass().after(time.Hour).run(0, 1).pass()
	p.job.Debug = true
	want(p.after(9*time.Second).pass(), 70)
	p.pass().run(0, 1).pass()
	p.job.Debug = false
	want(p.after(time.Hour).pass(), 70) // debugging does not count as running
	p.pass().run(0, 1).pass().want(batch.JobRunning, 0)
	p.after(30*time.Second).exit(0, 0).exit(1, 0)
	want(p.pass().want(batch.JobSucceeded, 0), 100)
	want(p.after(time.Hour).pass(), 100)

	// This job ends before it is observed to run.
	p = newPlay(t, 2, 0).pass().after(time.Minute).run(0)
	p.after(2 * time.Second).run(1)
	p.after(3*time.Second).exit(0, 0).exit(1, 0)
	want(p.pass().want(batch.JobSucceeded, 0), 3)
}
