package view

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/observed"
)

// shownEvents is the largest number of rows of events that a page lists.
const shownEvents = 500

// fillEvents lists the events about the job and the warnings about its pods, newest first, and sets MoreEvents.
// Warnings that differ only in the pod share one row, because the pods of a gang often wait for the same reason.
func (in *JobInput) fillEvents(p *JobPage) {
	for _, e := range in.Events {
		p.Events = append(p.Events, eventRow(e))
	}
	type group struct {
		row  int
		pods map[string]bool
	}
	groups := map[string]*group{}
	for _, e := range in.Warnings { // oldest first, so that a row ends with the newest warning
		r, of := eventRow(e), e.InvolvedObject
		r.Pod = of.Name
		key := e.Reason + "\n" + strings.NewReplacer(string(of.UID), "", of.Name, "").Replace(e.Message)
		g := groups[key]
		if g == nil {
			g = &group{len(p.Events), map[string]bool{}}
			groups[key] = g
			p.Events = append(p.Events, r)
		} else {
			r.Count += p.Events[g.row].Count
		}
		g.pods[of.Name] = true
		r.Others = len(g.pods) - 1
		p.Events[g.row] = r
	}
	slices.Reverse(p.Events)
	slices.SortStableFunc(p.Events, func(a, b EventRow) int { return b.At.Compare(a.At) })
	p.MoreEvents = max(0, len(p.Events)-shownEvents)
	p.Events = p.Events[:len(p.Events)-p.MoreEvents]
}

func eventRow(e *corev1.Event) EventRow {
	r := EventRow{At: observed.EventTime(e), Reason: e.Reason, Message: observed.OneLine(e.Message), Count: observed.EventCount(e), Tone: Quiet}
	if e.Type == corev1.EventTypeWarning {
		r.Tone = Wait
	}
	return r
}
