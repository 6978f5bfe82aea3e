package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// Plan says in one line how large a training job is, who decides its end and what bounds it; empty for a job that only has
// what its manifest says of every replica.
func (j *Job) Plan() string {
	n := j.Normal
	if n == nil {
		return ""
	}
	var parts []string
	if n.Elastic != nil {
		parts = append(parts, "replicas "+size(n))
	}
	if master := master(n); master != "" {
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

// size is the number of replicas wanted, and the bounds where it may change.
func size(n *engine.Job) string {
	if n.Elastic == nil {
		return fmt.Sprint(n.Replicas())
	}
	return fmt.Sprintf("%d %s", n.Replicas(), bounds(n))
}

// bounds are those of an elastic job's size; empty for another job.
func bounds(n *engine.Job) string {
	if n == nil || n.Elastic == nil {
		return ""
	}
	return fmt.Sprintf("(elastic %d-%d)", n.Elastic.Min, n.Elastic.Max)
}

// master is the one replica whose end is that of the job, as ROLE-RANK; empty where there is no such replica.
func master(n *engine.Job) string {
	if n == nil || len(n.Success) != 1 || len(n.Failure) != 1 || len(n.Success[0].Members) != 1 ||
		!slices.Equal(n.Success[0].Members, n.Failure[0].Members) {
		return ""
	}
	m := n.Success[0].Members[0]
	return fmt.Sprintf("%s-%d", n.Roles[m.Role].Type, m.Rank)
}

// rendezvous is where the replicas of a job that torchrun starts find each other: HOST:PORT and by what means.
func rendezvous(n *engine.Job) string {
	if len(n.Roles) == 0 || n.Roles[0].Main >= len(n.Roles[0].Template.Spec.Containers) {
		return ""
	}
	command := n.Roles[0].Template.Spec.Containers[n.Roles[0].Main].Command
	if len(command) == 0 || command[0] != "torchrun" {
		return ""
	}
	option := func(name string) string {
		if i := slices.Index(command, name); i >= 0 && i+1 < len(command) {
			return command[i+1]
		}
		return ""
	}
	endpoint := option("--rdzv_endpoint")
	if endpoint == "" {
		return ""
	}
	return fmt.Sprintf("%s by %s", endpoint, option("--rdzv_backend"))
}

// restarts counts the incidents of a job, or those that are charged against the limit where there is one: 1 of 3 restarts.
func (j *Job) restarts() string {
	number, of := j.restartCount()
	if of == 1 {
		return number + " restart"
	}
	return number + " restarts"
}

// restartCount is the number in restarts, and the last one that it names.
func (j *Job) restartCount() (number string, of int32) {
	if j.Normal == nil || j.Normal.RestartLimit == nil {
		return fmt.Sprint(j.Status.Restarts), j.Status.Restarts
	}
	return fmt.Sprintf("%d of %d", j.Status.BackoffCount, *j.Normal.RestartLimit), *j.Normal.RestartLimit
}

// deadline says when a job runs out of time.
func (j *Job) deadline(now time.Time) string {
	n := j.Normal
	if n == nil || n.Deadline == nil {
		return ""
	}
	finished, _ := Finished(j.Status)
	if j.Status.StartTime == nil || finished || j.Status.Phase == batch.JobPaused {
		return n.Deadline.String()
	}
	end := j.Status.StartTime.Add(*n.Deadline)
	return fmt.Sprintf("%s, at %s (%s)", n.Deadline, end.UTC().Format(time.RFC3339), j.timeLeft(now))
}

// timeLeft is when a job runs out of time: "in 59m"; empty where it has no deadline or the clock does not run.
func (j *Job) timeLeft(now time.Time) string {
	finished, _ := Finished(j.Status)
	if j.Normal == nil || j.Normal.Deadline == nil || j.Status.StartTime == nil || finished || j.Status.Phase == batch.JobPaused {
		return ""
	}
	end := j.Status.StartTime.Add(*j.Normal.Deadline)
	if end.After(now) {
		return "in " + age(now, end)
	}
	return "passed"
}
