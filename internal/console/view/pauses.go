package view

import (
	"slices"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// interval is a span of time.
type interval struct{ from, to time.Time }

// during reports whether a pause began during an attempt, which it has ended then.
func (p *interval) during(a *attempt) bool {
	return p.from.After(a.created) && !p.from.Truncate(time.Second).After(a.over)
}

// pausedDuring reports whether a pause began during an attempt.
func (l *lane) pausedDuring(a *attempt) bool {
	return slices.ContainsFunc(l.pauses, func(p interval) bool { return p.during(a) })
}

// pausedAt reports whether the job was paused at a time.
func (l *lane) pausedAt(at time.Time) bool {
	return slices.ContainsFunc(l.pauses, func(p interval) bool { return !at.Before(p.from) && at.Before(p.to) })
}

// turn is a moment at which the job was paused or resumed.
type turn struct {
	at     time.Time
	paused bool
}

// turns returns when the job was paused and resumed, as its events and its conditions tell, the oldest first. The
// cluster forgets events after about an hour, and a job in the cluster has its last conditions alone.
func (in *JobInput) turns() []turn {
	var all []turn
	for _, e := range in.Events {
		switch batch.Reason(e.Reason) {
		case batch.EventJobPaused:
			all = append(all, turn{observed.EventTime(e), true})
		case batch.EventJobResumed:
			all = append(all, turn{observed.EventTime(e), false})
		}
	}
	for _, c := range slices.Concat(in.Conditions, in.Job.Status().Conditions) {
		if c.Type == batch.JobPausedCondition && (c.Reason == batch.ReasonPaused || c.Reason == batch.ReasonResumed) {
			all = append(all, turn{c.LastTransitionTime.Time, c.Reason == batch.ReasonPaused})
		}
	}
	slices.SortStableFunc(all, func(a, b turn) int { return a.at.Compare(b.at) })
	return all
}

// pauses returns the times in which the job was paused, the oldest first. A pause of which only the end is known began
// when the last attempt before ended.
func (in *JobInput) pauses(lanes map[string]*lane) []interval {
	var all []interval
	var from time.Time
	for _, t := range in.turns() {
		switch {
		case t.paused && from.IsZero():
			from = t.at
		case t.paused:
		case !from.IsZero():
			all, from = append(all, interval{from, t.at}), time.Time{}
		default:
			began := lastEnd(lanes, t.at)
			if n := len(all); !began.IsZero() && (n == 0 || began.After(all[n-1].to)) {
				all = append(all, interval{began, t.at})
			}
		}
	}
	if !from.IsZero() {
		all = append(all, interval{from, in.end()})
	}
	return all
}

// lastEnd returns when the last attempt ended before a time; zero if none did.
func lastEnd(lanes map[string]*lane, before time.Time) time.Time {
	var last time.Time
	for _, l := range lanes {
		for i := range l.attempts {
			if a := &l.attempts[i]; a.end != "" && !a.over.After(before) && a.over.After(last) {
				last = a.over
			}
		}
	}
	return last
}

// without calls add for the parts of the time after an attempt in which a replica had no pod. If it is to have another
// attempt, it was restarting before a pause, and after a pause, which has ended what ran, it was waiting for a pod
// again.
func (l *lane) without(a *attempt, to time.Time, waits bool, add func(from, to time.Time, s state)) {
	from, s := a.over, stateRestarting
	for _, p := range l.pauses {
		if p.during(a) {
			s = stateQueued
		}
		if !p.to.After(from) || !p.from.Before(to) {
			continue
		}
		if waits {
			add(from, p.from, s)
		}
		if p.from.After(from) {
			from = p.from
		}
		add(from, earlier(to, p.to), statePaused)
		from, s = p.to, stateQueued
	}
	if waits {
		add(from, to, s)
	}
}
