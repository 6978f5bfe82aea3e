package view

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// Job is the input for everything that this package renders about a job.
type Job struct {
	// Kind is the job's kind, for example GenericJob. Ref is its address, for example genericjob/mnist.
	Kind, Ref       string
	Namespace, Name string
	// Queue is the queue of the t9k-scheduler; empty for the default scheduler.
	Queue   string
	Created time.Time
	Status  *batch.JobStatus
	// Normal is the converted job; nil if it is not known or the spec is invalid.
	Normal *engine.Job
}

// Jobs returns the table of jobs for "t9k get". wide adds the queue and times, and withNamespace the namespace.
func Jobs(jobs []Job, now time.Time, withNamespace, wide bool) Table {
	t := Table{Header: []string{"KIND", "NAME", "PHASE", "READY", "RESTARTS", "AGE"}}
	if wide {
		t.Header = append(t.Header, "QUEUE", "START", "WAITED", "RAN")
	}
	if withNamespace {
		t.Header = append([]string{"NAMESPACE"}, t.Header...)
	}
	for _, j := range jobs {
		s := j.Status
		row := []Cell{
			{Text: j.Kind}, {Text: j.Name}, phaseCell(s.Phase), {Text: ready(s)},
			{Text: fmt.Sprint(s.Restarts)}, {Text: age(j.Created, now)},
		}
		if wide {
			start := "-"
			if s.StartTime != nil {
				start = s.StartTime.UTC().Format(time.RFC3339)
			}
			waited, ran := j.times(now)
			row = append(row, Plainly(orDash(j.Queue), start, orDash(waited), orDash(ran))...)
		}
		if withNamespace {
			row = append(Plainly(j.Namespace), row...)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// JobList renders a table of jobs in at most height lines of at most width characters. The header is always shown. If
// the jobs do not all fit, it first leaves out finished ones. A last line then counts the jobs that were left out.
func JobList(jobs []Job, now time.Time, st Style, withNamespace, wide bool, width, height int) []string {
	if len(jobs) == 0 {
		return []string{"No jobs."}
	}
	blocks := Jobs(jobs, now, withNamespace, wide).blocks(st, "", width)
	shown := make([]bool, len(jobs))
	left := height - len(blocks[0]) - 1 // the header, and the line that counts
	for _, ended := range []bool{false, true} {
		for i, j := range jobs {
			finished, _ := observed.Finished(j.Status)
			if lines := len(blocks[i+1]); finished == ended && lines <= left {
				shown[i], left = true, left-lines
			}
		}
	}
	lines, hidden := blocks[0], 0
	for i := range jobs {
		if shown[i] {
			lines = append(lines, blocks[i+1]...)
		} else {
			hidden++
		}
	}
	return append(lines, andMore(hidden, "", st, width)...)
}

func phaseCell(p batch.JobPhase) Cell {
	return Cell{Text: orDash(string(p)), Colour: phaseColour(string(p))}
}

// phaseColour returns the colour of a phase of a job or replica.
func phaseColour(phase string) Colour {
	switch phase {
	case string(batch.JobRunning), string(batch.JobSucceeded):
		return Good
	case string(batch.JobFailed), string(batch.JobUnknown):
		return Bad
	case string(batch.ReplicaDeleted):
		return Dim
	case "":
		return Plain
	default:
		return Wait
	}
}

// ready returns the number of running replicas and the number of wanted replicas, such as 2/4; a dash before the job
// has a phase.
func ready(s *batch.JobStatus) string {
	if s.Phase == "" {
		return "-"
	}
	return fmt.Sprintf("%d/%d", s.Aggregate.Running, observed.Total(s))
}

// Age returns how long ago a time was, as text. For the zero time, it returns a dash.
func Age(t, now time.Time) string { return age(t, now) }

func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
