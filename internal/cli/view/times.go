package view

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"tensorstack.dev/batch/internal/observed"
)

// ran returns the total time for which the job has run, without debug mode.
func (j *Job) ran(now time.Time) time.Duration { return observed.Ran(j.Status).At(now) }

// lasted returns the time from the job's creation to its end, or until now.
func (j *Job) lasted(now time.Time) time.Duration {
	if j.Created.IsZero() {
		return 0
	}
	if j.Status.CompletionTime != nil {
		now = j.Status.CompletionTime.Time
	}
	return max(0, now.Sub(j.Created))
}

// waited returns the total time for which the job has existed without running: in a queue, starting, restarting or
// paused.
func (j *Job) waited(now time.Time) time.Duration { return max(0, j.lasted(now)-j.ran(now)) }

// times returns how long the job waited and ran, as texts. Both are empty if its creation time is not known, and ran is
// empty if the job has not run.
func (j *Job) times(now time.Time) (waited, ran string) {
	if j.Created.IsZero() {
		return "", ""
	}
	ran = duration.HumanDuration(j.ran(now))
	if j.ran(now) == 0 {
		ran = ""
	}
	return duration.HumanDuration(j.waited(now)), ran
}
