package view

import (
	"fmt"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// Plan returns in one line the size of an elastic job, the replica that alone decides the result, the rendezvous and
// the limits of the job; empty if the spec has none of these, or if Normal is nil.
func (j *Job) Plan() string {
	n := j.Normal
	if n == nil {
		return ""
	}
	var parts []string
	if n.Elastic != nil {
		parts = append(parts, "replicas "+size(n))
	}
	if master := observed.Decides(n); master != "" {
		parts = append(parts, master+" decides how the job ends")
	}
	if r := rendezvous(n); r != "" {
		parts = append(parts, "rendezvous at "+r)
	}
	if n.RestartLimit != nil {
		parts = append(parts, fmt.Sprintf("at most %s", Count(int(*n.RestartLimit), "restart")))
	}
	if n.Deadline != nil {
		parts = append(parts, "deadline after "+n.Deadline.String())
	}
	return strings.Join(parts, "; ")
}

// size returns the number of wanted replicas, with the bounds of an elastic job, as text.
func size(n *engine.Job) string {
	if n.Elastic == nil {
		return fmt.Sprint(n.Replicas())
	}
	return fmt.Sprintf("%d %s", n.Replicas(), bounds(n))
}

// bounds returns the bounds of an elastic job's size as text; empty for other jobs.
func bounds(n *engine.Job) string {
	if n == nil || n.Elastic == nil {
		return ""
	}
	return fmt.Sprintf("(elastic %d-%d)", n.Elastic.Min, n.Elastic.Max)
}

// rendezvous returns where and how the replicas of a job find each other, such as "mnist-worker-0:29500 by c10d"; empty
// if they need no rendezvous.
func rendezvous(n *engine.Job) string {
	if n.Rendezvous == nil {
		return ""
	}
	return fmt.Sprintf("%s by %s", n.Rendezvous.Endpoint, n.Rendezvous.Backend)
}

// restarts returns the number of incidents (JobStatus.Restarts) as text, such as "2 restarts". If there is a limit, it
// counts only the charged incidents (JobStatus.BackoffCount): "1 of 3 restarts".
func (j *Job) restarts() string {
	number, of := j.restartCount()
	if of == 1 {
		return number + " restart"
	}
	return number + " restarts"
}

// restartCount returns the number of restarts, with the limit if there is one, as text. of is the last number in the
// text, which decides between singular and plural.
func (j *Job) restartCount() (number string, of int32) {
	if j.Normal == nil || j.Normal.RestartLimit == nil {
		return fmt.Sprint(j.Status.Restarts), j.Status.Restarts
	}
	return fmt.Sprintf("%d of %d", j.Status.BackoffCount, *j.Normal.RestartLimit), *j.Normal.RestartLimit
}

// deadline returns the job's deadline as text; empty if there is none. While the job is active, the text includes the
// time at which the deadline passes.
func (j *Job) deadline(now time.Time) string {
	n := j.Normal
	if n == nil || n.Deadline == nil {
		return ""
	}
	finished, _ := observed.Finished(j.Status)
	if j.Status.StartTime == nil || finished || j.Status.Phase == batch.JobPaused {
		return n.Deadline.String()
	}
	end := j.Status.StartTime.Add(*n.Deadline)
	return fmt.Sprintf("%s, at %s (%s)", n.Deadline, end.UTC().Format(time.RFC3339), j.timeLeft(now))
}

// timeLeft returns the time until the deadline as text: "in 59m", or "passed"; empty if there is no deadline or the job
// is not active.
func (j *Job) timeLeft(now time.Time) string {
	finished, _ := observed.Finished(j.Status)
	if j.Normal == nil || j.Normal.Deadline == nil || j.Status.StartTime == nil || finished || j.Status.Phase == batch.JobPaused {
		return ""
	}
	end := j.Status.StartTime.Add(*j.Normal.Deadline)
	if end.After(now) {
		return "in " + age(now, end)
	}
	return "passed"
}
