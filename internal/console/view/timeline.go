package view

import (
	"fmt"
	"slices"
	"time"

	"tensorstack.dev/batch/internal/observed"
)

// state is the state of a replica at one time.
type state string

// The states of a replica.
const (
	stateQueued     state = "queued"
	stateStarting   state = "starting"
	stateRunning    state = "running"
	stateRestarting state = "restarting"
	stateSucceeded  state = "succeeded"
	stateFailed     state = "failed"
	stateEvicted    state = "evicted"
	stateStopped    state = "stopped"
	// statePaused is the state of a replica without a pod in a paused job. It has no segment, because a span shows the
	// pause.
	statePaused state = "paused"
)

// Segment is a part of a lane. X and W are percentages of the width.
type Segment struct {
	X, W  float64
	State string
	// Title describes the segment, for a tooltip.
	Title string
	// Text tells how the attempt ended, if the segment shows the end and is wide enough; otherwise empty.
	Text string
	// Guessed is true if the start or the end of the attempt is an estimate; false in lanes of several replicas.
	Guessed bool
	// Heat is the shade of a cell of a heat map, from 1 to 4; 0 in other lanes.
	Heat int `json:",omitempty"`
}

// Lane is a row of the timeline.
type Lane struct {
	Label    string
	Segments []Segment
}

// Span is an interval that concerns all lanes. Kind is "paused" or "ended", which marks the end of the job.
type Span struct {
	X, W        float64
	Kind, Title string
}

// Tick is a mark on the time axis. X is a percentage of the width.
type Tick struct {
	X    float64
	Text string
}

// Timeline is the chart of a job's history.
type Timeline struct {
	Begin, End time.Time
	// Live is true while the end of the timeline is the current time.
	Live  bool
	Lanes []Lane
	Spans []Span
	Ticks []Tick
	// Grouped is the largest number of replicas per lane; 1 if each replica has its own lane.
	Grouped int
	// Heat is true if the lanes are the rows of a heat map.
	Heat bool `json:",omitempty"`
	// States are the states of the segments, in the order of the legend.
	States []string
}

// Paused reports whether the chart shows a pause.
func (t Timeline) Paused() bool {
	return slices.ContainsFunc(t.Spans, func(s Span) bool { return s.Kind == "paused" })
}

// begin returns when the job was created.
func (in *JobInput) begin() time.Time { return in.Job.GetCreationTimestamp().Time }

// end returns when the job ended. If the job has not ended, end returns in.Now.
func (in *JobInput) end() time.Time {
	if c := in.Job.Status().CompletionTime; c != nil {
		return c.Time
	}
	return in.Now
}

// scale converts times to percentages of the width.
type scale struct{ begin, end time.Time }

func (s scale) x(t time.Time) float64 {
	whole := s.end.Sub(s.begin)
	if whole <= 0 {
		return 0
	}
	return max(0, min(100, round(100*float64(t.Sub(s.begin))/float64(whole))))
}

func round(x float64) float64 { return float64(int64(x*100+0.5)) / 100 }

// Up to ownLanes replicas have one lane each, up to groupedLanes share grouped lanes, and more are shown as a heat map.
// manyLanes is the approximate maximum of grouped lanes, and heatRows is the approximate maximum of rows in a heat map.
const (
	ownLanes     = 100
	groupedLanes = 1000
	manyLanes    = 50
	heatRows     = 80
)

// timeline returns the timeline of a job. lanes are its replicas and pauses its pauses, as lanesOf returns them.
func (in *JobInput) timeline(lanes []lane, pauses []interval) Timeline {
	finished, _ := observed.Finished(in.Job.Status())
	t := Timeline{Begin: in.begin(), End: in.end(), Live: !finished, Grouped: 1}
	for i := range lanes {
		for _, a := range lanes[i].attempts {
			if a.over.After(t.End) { // pods that end after the job
				t.End = a.over
			}
		}
	}
	if t.End.Sub(t.Begin) < time.Second {
		t.End = t.Begin.Add(time.Second)
	}
	s := scale{t.Begin, t.End}
	switch {
	case len(lanes) > groupedLanes:
		t.Heat = true
		t.group(lanes, s, heatRows, hottest)
	case len(lanes) > ownLanes:
		t.group(lanes, s, manyLanes, mostUrgent)
	default:
		for i := range lanes {
			t.Lanes = append(t.Lanes, lanes[i].draw(s, t.End))
		}
	}
	t.Spans = in.spans(s, pauses, t.End)
	t.Ticks = ticks(s)
	for _, l := range t.Lanes {
		for _, g := range l.Segments {
			if !slices.Contains(t.States, g.State) {
				t.States = append(t.States, g.State)
			}
		}
	}
	slices.SortFunc(t.States, func(a, b string) int { return slices.Index(stateOrder, state(a)) - slices.Index(stateOrder, state(b)) })
	return t
}

// stateOrder lists the states in the order of the legend.
var stateOrder = []state{stateQueued, stateStarting, stateRunning, stateRestarting, stateSucceeded, stateFailed, stateEvicted, stateStopped, statePaused}

// piece is a part of a lane with its times. a is the attempt that it belongs to.
type piece struct {
	from, to time.Time
	state    state
	a        *attempt
}

// pieces returns the parts of a lane in their order. Attempts that have not ended last until end.
func (l *lane) pieces(end time.Time) []piece {
	var all []piece
	add := func(from, to time.Time, s state, a *attempt) {
		if to.After(from) {
			all = append(all, piece{from, to, s, a})
		}
	}
	for i := range l.attempts {
		a := &l.attempts[i]
		// An attempt with a lower number belongs to a replica that was removed by scaling and added again.
		if i > 0 && a.number > l.attempts[i-1].number {
			l.without(&l.attempts[i-1], a.created, true, func(from, to time.Time, s state) { add(from, to, s, a) })
		}
		over := end
		if a.end != "" {
			over = a.over
		}
		scheduled, started := over, over
		if !a.scheduled.IsZero() {
			scheduled = a.scheduled
		}
		if !a.started.IsZero() {
			started = a.started
			scheduled = earlier(scheduled, started)
		}
		add(a.created, scheduled, stateQueued, a)
		add(scheduled, started, stateStarting, a)
		ran := stateRunning
		if a.end != "" {
			ran = a.end
		}
		if !over.After(started) && a.end != "" { // so that an attempt that has not run is visible
			over = started.Add(time.Millisecond)
		}
		add(started, over, ran, a)
	}
	if n := len(l.attempts); n > 0 && (l.restarts || l.paused) && l.attempts[n-1].end != "" {
		l.without(&l.attempts[n-1], end, l.restarts, func(from, to time.Time, s state) { add(from, to, s, &l.attempts[n-1]) })
	}
	return all
}

// draw returns the lane as a row of the timeline.
func (l *lane) draw(s scale, end time.Time) Lane {
	row := Lane{Label: l.name()}
	for _, p := range l.pieces(end) {
		if p.state == statePaused {
			continue
		}
		x := s.x(p.from)
		g := Segment{X: x, W: round(max(0.3, s.x(p.to)-x)), State: string(p.state), Guessed: p.a.guessed,
			Title: fmt.Sprintf("%s, attempt %d: %s for %s", l.name(), p.a.number+1, p.state, Age(p.to.Sub(p.from)))}
		if p.a.node != "" {
			g.Title += " on " + p.a.node
		}
		if p.state == p.a.end {
			g.Title = fmt.Sprintf("%s, attempt %d: %s after %s", l.name(), p.a.number+1, p.a.detail, Age(p.to.Sub(p.from)))
			if g.W > 9 {
				g.Text = p.a.detail
			}
		}
		row.Segments = append(row.Segments, g)
	}
	return row
}

// spans returns the pauses and, if some pods ended more than a second after the job, a mark at the end of the job.
func (in *JobInput) spans(s scale, pauses []interval, end time.Time) []Span {
	var all []Span
	for _, p := range pauses {
		if x := s.x(p.from); p.to.After(p.from) {
			all = append(all, Span{X: x, W: round(max(0.2, s.x(p.to)-x)), Kind: "paused", Title: "Paused for " + Age(p.to.Sub(p.from))})
		}
	}
	if c := in.Job.Status().CompletionTime; c != nil && end.Sub(c.Time) > time.Second {
		all = append(all, Span{X: s.x(c.Time), W: 0.15, Kind: "ended", Title: "The job ended; some pods went on"})
	}
	return all
}

// ticks returns up to six marks at round times after the start.
func ticks(s scale) []Tick {
	whole := s.end.Sub(s.begin)
	steps := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
		5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}
	step := steps[len(steps)-1]
	for _, d := range steps {
		if whole/d <= 6 {
			step = d
			break
		}
	}
	for whole/step > 6 {
		step *= 2
	}
	var all []Tick
	for n := time.Duration(1); n <= whole/step && n*step < whole; n++ {
		at := n * step
		if x := s.x(s.begin.Add(at)); x < 96 {
			all = append(all, Tick{x, Age(at)})
		}
	}
	return all
}
