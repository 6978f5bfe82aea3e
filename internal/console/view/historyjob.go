package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/observed"
)

// AttemptRow is a row of the table of a job's attempts.
type AttemptRow struct {
	Replica string
	// Number counts from 1. End describes how the attempt ended, or says that it lasts.
	Number    int
	Node, End string
	Tone      Tone
	// Created, Scheduled, Begun and Ended are zero if they are not known. Ran is the time from Begun to Ended; zero if
	// one of them is not known.
	Created, Scheduled, Begun, Ended time.Time
	Ran                              time.Duration
	// Logs is the path of the page for the archived log, even if the archive has no such log; empty if the console has
	// no archive.
	Logs string
	// uid is the UID of the pod in a row of JobPage.Earlier; empty in other rows, and if it is not known.
	uid string
}

// HistoryJobPage is the page of an archived job.
type HistoryJobPage struct {
	JobPage
	Attempts []AttemptRow
	// MoreAttempts is the number of attempts that are not listed.
	MoreAttempts int
	// Live is the path of the job's page while the job exists; empty after its deletion.
	Live string
	// Rerun is the manifest of a copy of the job. HistoryJob does not set it.
	Rerun string
}

// shownAttempts is the largest number of attempts that a page lists.
const shownAttempts = 500

var historyJobTabs = []string{"attempts", "replicas", "events", "conditions", "manifest"}

// HistoryJob returns the page of an archived job with the named tab open, without Rerun. An unknown name opens the
// first tab. HistoryJob returns an error if it cannot read the archived job or an event.
func HistoryJob(j *archive.JobDetails, tab string, now time.Time) (*HistoryJobPage, error) {
	in, err := archivedInput(j, now)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(historyJobTabs, tab) {
		tab = historyJobTabs[0]
	}
	p := &HistoryJobPage{JobPage: JobPage{JobRow: RowOf(in.Job), Tab: tab, Timeline: in.timeline(in.lanesOf()), Facts: in.facts()}}
	p.Path = ArchivedPath(j.UID)
	p.Tabs = tabLinks(p.Path, historyJobTabs, tab)
	in.fillReplicas(&p.JobPage)
	in.fillEvents(&p.JobPage)
	for _, c := range slices.Backward(j.Conditions) {
		p.Conditions = append(p.Conditions, ConditionRow{c.Type, c.Status, c.Reason, c.Message, c.Since})
	}
	podOf := ambiguous(in.Attempts)
	for i := range j.Attempts[:min(len(j.Attempts), shownAttempts)] {
		a := &j.Attempts[i].Attempt
		row := attemptRow(a)
		row.Logs = logsOfAttempt(p.Path, row.Replica, a.Number, podOf[a.UID])
		p.Attempts = append(p.Attempts, row)
	}
	p.MoreAttempts = len(j.Attempts) - len(p.Attempts)
	if j.Gone.IsZero() {
		p.Live = JobPath(in.Job.Kind, j.Namespace, j.Name)
	} else {
		p.bury(j)
	}
	return p, nil
}

// archivedInput converts the archived records of a job to a JobInput. For a deleted job, Now is the time at which the
// recorder noticed the deletion, so that the timeline ends there.
func archivedInput(j *archive.JobDetails, now time.Time) (*JobInput, error) {
	job, err := j.Observed()
	if err != nil {
		return nil, err
	}
	in := &JobInput{Job: job, Now: now}
	if !j.Gone.IsZero() {
		in.Now = j.Gone
	}
	in.Attempts = make([]*archive.Attempt, len(j.Attempts))
	for i := range j.Attempts {
		in.Attempts[i] = &j.Attempts[i].Attempt
	}
	for _, c := range j.Conditions {
		in.Conditions = append(in.Conditions, batch.JobCondition{Type: batch.JobConditionType(c.Type), Reason: batch.Reason(c.Reason), LastTransitionTime: metav1.NewTime(c.Since)})
	}
	for _, raw := range j.Events {
		e := &corev1.Event{}
		if err := json.Unmarshal(raw, e); err != nil {
			return nil, fmt.Errorf("reading an event of %s from the archive: %w", job.Ref(), err)
		}
		if e.InvolvedObject.Kind == "Pod" {
			in.Warnings = append(in.Warnings, e)
		} else {
			in.Events = append(in.Events, e)
		}
	}
	return in, nil
}

// bury adapts the page to a deleted job: the page tells when the job was deleted, shows neither a TensorBoard nor
// running replicas, and its timeline no longer moves. If the job was deleted before it finished, bury also sets the
// outcome Deleted, ends the job at its deletion, and marks the replicas that had not ended as deleted.
func (p *HistoryJobPage) bury(j *archive.JobDetails) {
	// The TensorBoard was deleted with the job.
	p.Facts = slices.DeleteFunc(p.Facts, func(f Fact) bool { return f.Name == boardFact })
	p.Facts = append(p.Facts, Fact{Name: "Gone", At: j.Gone})
	p.Timeline.Live, p.Deleting, p.Running = false, false, 0
	if j.Outcome() != archive.Deleted {
		return
	}
	p.Phase, p.Tone, p.Why, p.Ended = archive.Deleted, Quiet, deletedWhy(&j.Job), j.Gone
	p.Ran = observed.RunTime{Before: p.Ran.At(j.Gone)}
	for i := range p.Replicas {
		r := &p.Replicas[i]
		if r.Phase != string(batch.ReplicaSucceeded) && r.Phase != string(batch.ReplicaFailed) {
			r.Phase, r.Tone, r.Detail = string(batch.ReplicaDeleted), Quiet, ""
		}
	}
	for i := range p.Roles {
		p.Roles[i].Counts = fmt.Sprintf("%d, last %s", p.Roles[i].Total, p.Roles[i].Counts)
	}
}

// attemptOfArchive converts a recorded attempt for the timeline.
func attemptOfArchive(r *archive.Attempt) attempt {
	a := attempt{uid: r.UID, number: r.Number, created: r.Created, scheduled: r.Scheduled, started: r.Started, over: r.Ended, node: r.Node, detail: endText(r)}
	switch r.Outcome {
	case "":
		a.over = time.Time{}
	case archive.Succeeded:
		a.end = stateSucceeded
	case archive.Failed:
		a.end = stateFailed
	case archive.Evicted:
		a.end = stateEvicted
	case archive.Lost:
		a.end, a.guessed = stateStopped, true
	default:
		a.end = stateStopped
	}
	return a
}

// endText describes the end of an attempt in a few words; empty until the attempt ends.
func endText(r *archive.Attempt) string {
	switch r.Outcome {
	case archive.Lost:
		return "ended unseen"
	case archive.Failed:
		return failureText(r.ExitCode, r.Cause)
	}
	return strings.ToLower(string(r.Outcome))
}

var toneOfOutcome = map[archive.Outcome]Tone{"": Busy, archive.Succeeded: Good, archive.Failed: Bad, archive.Evicted: Wait, archive.Stopped: Quiet, archive.Lost: Quiet}

// ambiguous returns the UIDs of attempts that share their replica and number with another attempt, as a map from each
// UID to itself. The numbers of a replica start again when scaling removes the replica and later adds it again.
func ambiguous(all []*archive.Attempt) map[string]string {
	type key struct {
		replica string
		number  int
	}
	count, uids := map[key]int{}, map[string]string{}
	for _, a := range all {
		count[key{a.Replica, a.Number}]++
	}
	for _, a := range all {
		if count[key{a.Replica, a.Number}] > 1 {
			uids[a.UID] = a.UID
		}
	}
	return uids
}

func attemptRow(r *archive.Attempt) AttemptRow {
	name := fmt.Sprintf("%s-%d", r.Role, r.Rank)
	row := AttemptRow{Replica: name, Number: archive.Ordinal(r.Number), Node: r.Node, End: endText(r), Tone: toneOfOutcome[r.Outcome], Created: r.Created, Scheduled: r.Scheduled,
		Begun: r.Started, Ended: r.Ended}
	if r.Outcome == "" {
		row.End = "lasts"
	}
	if cause := observed.OneLine(r.Cause); cause != "" && r.Outcome != archive.Failed {
		row.End += ", " + cause
	}
	if !r.Started.IsZero() && !r.Ended.IsZero() {
		row.Ran = max(0, r.Ended.Sub(r.Started))
	}
	return row
}
