// Package view computes the view models of the console's pages from the cluster's objects and from archived records:
// lists of jobs with their filters, the timeline and the logs of a job, queues, nodes, usage and drafts of manifests.
// It is pure: it gets the time and the values of the URL as arguments, and knows neither HTML nor HTTP. Start reading
// at Jobs and JobOf.
package view

import (
	"strings"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// Tone is the meaning of a colour. The stylesheet selects the colour.
type Tone string

// The tones.
const (
	Good  Tone = "good"  // has succeeded, is ready, or can start
	Bad   Tone = "bad"   // has failed, is not ready, or can never start; also an unknown state
	Wait  Tone = "wait"  // waits, or may need attention
	Quiet Tone = "quiet" // needs no attention
	Busy  Tone = "busy"  // runs, or is in use
)

// toneOf returns the tone of a phase of a job or of a replica, or of the outcome of an archived job. Phases that need
// no other tone, such as Pending, have Wait.
func toneOf(phase string) Tone {
	switch phase {
	case string(batch.JobRunning):
		return Busy
	case string(batch.JobSucceeded):
		return Good
	case string(batch.JobFailed), string(batch.JobUnknown):
		return Bad
	case string(batch.ReplicaDeleted), string(batch.JobPaused):
		return Quiet
	default:
		return Wait
	}
}

// JobRow shows one job in a list.
type JobRow struct {
	UID string
	// Path is the path of the job's page.
	Path                       string
	Kind, Namespace, Name, Ref string
	// Phase is the job's phase; "New" before the operator has seen the job. On pages of the archive, it is
	// archive.Deleted if the job was deleted before it finished.
	Phase string
	Tone  Tone
	// Why explains the phase in one line. It is empty if observed.Explain has nothing to say, for example while all
	// replicas run.
	Why string
	// Running and Done are the numbers of replicas that run and that have succeeded, and Total is the number of all
	// replicas. Share is the percentage of Total that runs or has succeeded, rounded down.
	Running, Done, Total, Share int32
	Restarts                    int32
	// Queue is the queue that the job names; empty if it names none. User is the user who requested the queue; empty if
	// none was recorded.
	Queue, User string
	Labels      map[string]string
	Created     time.Time
	// Ended is zero until the job ends.
	Ended time.Time
	Ran   observed.RunTime
	// Deleting is true if the deletion of the job was requested.
	Deleting bool
}

// RowOf returns the row of a job.
func RowOf(j *observed.Job) JobRow {
	s := j.Status()
	r := JobRow{
		UID: string(j.GetUID()), Path: JobPath(j.Kind, j.GetNamespace(), j.GetName()),
		Kind: j.Kind.Name, Namespace: j.GetNamespace(), Name: j.GetName(), Ref: j.Ref(),
		Phase: string(s.Phase), Tone: toneOf(string(s.Phase)), Why: observed.Explain(s),
		Running: s.Aggregate.Running, Done: s.Aggregate.Succeeded, Total: observed.Total(s), Restarts: s.Restarts,
		Queue: j.Queue(), User: j.User(), Labels: j.GetLabels(), Created: j.GetCreationTimestamp().Time,
		Ran: observed.Ran(s), Deleting: j.GetDeletionTimestamp() != nil,
	}
	if r.Phase == "" {
		r.Phase, r.Why = "New", "The operator has not seen the job yet."
	}
	if r.Total > 0 {
		r.Share = 100 * r.There() / r.Total
	}
	if s.CompletionTime != nil {
		r.Ended = s.CompletionTime.Time
	}
	return r
}

// ID identifies the job's row in a page.
func (r *JobRow) ID() string { return "job-" + r.UID }

// There returns the number of replicas that run or have succeeded.
func (r *JobRow) There() int32 { return r.Running + r.Done }

// JobPath returns the path of the page of a job.
func JobPath(kind *kinds.Kind, namespace, name string) string {
	return "/jobs/" + namespace + "/" + strings.ToLower(kind.Name) + "/" + name
}

// KindOf returns the kind whose name in lower case is lower, as in a path; nil if there is none.
func KindOf(lower string) *kinds.Kind {
	for i := range kinds.All {
		if strings.ToLower(kinds.All[i].Name) == lower {
			return &kinds.All[i]
		}
	}
	return nil
}

// Waited returns how long the job has existed without running, until it ended or until now. Time in debug mode counts
// as waiting, because Ran does not include it.
func (r *JobRow) Waited(now time.Time) time.Duration {
	end := now
	if !r.Ended.IsZero() {
		end = r.Ended
	}
	return max(0, end.Sub(r.Created)-r.Ran.At(now))
}
