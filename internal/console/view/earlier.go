package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive"
)

// shownEarlier is the largest number of earlier attempts that a page lists.
const shownEarlier = 100

var toneOfState = map[state]Tone{stateSucceeded: Good, stateFailed: Bad, stateEvicted: Wait, stateStopped: Quiet}

// fillEarlier lists the ended attempts, except the current attempt of a replica that the status lists, because a row of
// replicas shows this attempt. It sets MoreEarlier.
func (in *JobInput) fillEarlier(p *JobPage, lanes []lane) {
	present := map[string]bool{}
	s := in.Job.Status()
	for i := range s.Tasks {
		for k := range s.Tasks[i].Replicas {
			r := &s.Tasks[i].Replicas[k]
			present[r.Name] = r.UID != "" || r.Phase != batch.ReplicaDeleted
		}
	}
	for i := range lanes {
		l := &lanes[i]
		for k := range l.attempts {
			last := k == len(l.attempts)-1
			if a := &l.attempts[k]; a.end != "" && (!last || !present[in.Job.GetName()+"-"+l.name()]) {
				p.Earlier = append(p.Earlier, l.row(a))
			}
		}
	}
	slices.SortStableFunc(p.Earlier, func(a, b AttemptRow) int { return b.Ended.Compare(a.Ended) })
	p.MoreEarlier = max(0, len(p.Earlier)-shownEarlier)
	p.Earlier = p.Earlier[:len(p.Earlier)-p.MoreEarlier]
}

// row returns an ended attempt as a row of a table, without Logs. Begun and Ran are zero if the times of the attempt
// are estimates.
func (l *lane) row(a *attempt) AttemptRow {
	r := AttemptRow{Replica: l.role + "-" + strconv.Itoa(l.rank), Number: archive.Ordinal(a.number), Node: a.node, End: a.detail, Tone: toneOfState[a.end], uid: a.uid, Created: a.created, Scheduled: a.scheduled, Ended: a.over}
	if !a.guessed && !a.started.IsZero() {
		r.Begun, r.Ran = a.started, max(0, a.over.Sub(a.started))
	}
	return r
}

// LinkArchive links the page to the job's record in the archive, and earlier attempts to their archived logs. path is
// the path of the record's page.
func (p *JobPage) LinkArchive(path string) {
	p.Facts = append(p.Facts, Fact{Name: "History", Text: "archived record", Href: path})
	for i := range p.Earlier {
		e := &p.Earlier[i]
		e.Logs = logsOfAttempt(path, e.Replica, e.Number-1, e.uid) // the archive may have other attempts with this number
	}
}

// logsOfAttempt returns the URL of an archived log. path is the path of the archived job, and number counts from 0. pod
// is the UID of the attempt; empty if its number suffices or the UID is not known.
func logsOfAttempt(path, replica string, number int, pod string) string {
	address := fmt.Sprintf("%s/logs?replica=%s&attempt=%d", path, replica, archive.Ordinal(number))
	if pod != "" {
		address += "&pod=" + url.QueryEscape(pod)
	}
	return address
}
