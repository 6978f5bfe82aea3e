package view

import (
	"slices"
	"time"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// interval is a pause of the job, from its beginning to its end. If the job is still paused, the pause ends at
// JobInput.end.
type interval struct{ from, to time.Time }

// during reports whether a pause began during an attempt and therefore ended it. It returns false for an attempt that
// has not ended.
func (p *interval) during(a *attempt) bool {
	return p.from.After(a.created) && !p.from.Truncate(time.Second).After(a.over)
}

// pausedDuring reports whether any pause of the job began during an attempt.
func (l *lane) pausedDuring(a *attempt) bool {
	return slices.ContainsFunc(l.pauses, func(p interval) bool { return p.during(a) })
}

// pausedAt reports whether the job was paused at the given time.
func (l *lane) pausedAt(at time.Time) bool {
	return slices.ContainsFunc(l.pauses, func(p interval) bool { return !at.Before(p.from) && at.Before(p.to) })
}

// turn is a time at which the job was paused or resumed.
type turn struct {
	at     time.Time
	paused bool
}

// turns returns when the job was paused and resumed, oldest first; a turn may occur several times. It combines events
// and conditions, because the cluster keeps events for only about an hour, and the status of a job holds only its
// latest conditions.
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

// pauses returns the intervals in which the job was paused, oldest first. If only the end of a pause is known, the
// pause begins at the last end of an attempt before that time. If no attempt has ended since the previous pause, pauses
// leaves this pause out.
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

// lastEnd returns the latest end of an attempt up to a time; zero if none had ended by then.
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

// without divides the time from the end of an attempt until to, in which the replica had no pod, and calls add for each
// part; add must ignore empty parts. If waits is true, the replica gets another attempt: it is restarting before the
// first pause and queued after a pause. If a pause ended the attempt, the replica is queued from the beginning. If
// waits is false, without adds only the pauses.
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
