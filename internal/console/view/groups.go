package view

import (
	"fmt"
	"slices"
	"time"
)

// bins is the number of moments at which lanes of groups are looked at.
const bins = 120

// urgency lists the states, the one first that a lane of a group shows if any of its replicas is in it.
var urgency = []state{stateFailed, stateEvicted, stateRestarting, stateQueued, stateStarting, stateStopped, stateRunning, stateSucceeded}

// group draws the lanes of many replicas: those of one role with neighbouring ranks share a lane, which shows at each
// moment the most urgent state and how many replicas are in it.
func (t *Timeline) group(lanes []lane, s scale) {
	t.Grouped = (len(lanes) + manyLanes - 1) / manyLanes
	for first := 0; first < len(lanes); {
		next := first
		for next < len(lanes) && next-first < t.Grouped && lanes[next].role == lanes[first].role {
			next++
		}
		t.Lanes = append(t.Lanes, drawGroup(lanes[first:next], s, t.End))
		first = next
	}
}

func drawGroup(lanes []lane, s scale, end time.Time) Lane {
	row := Lane{Label: fmt.Sprintf("%s-%d…%d", lanes[0].role, lanes[0].rank, lanes[len(lanes)-1].rank)}
	if len(lanes) == 1 {
		row.Label = lanes[0].name()
	}
	counts := make([]map[state]int, bins)
	for i := range lanes {
		for _, p := range lanes[i].pieces(end) {
			for b := int(s.x(p.from) * bins / 100); b < bins && float64(b)*100/bins < s.x(p.to); b++ {
				if counts[b] == nil {
					counts[b] = map[state]int{}
				}
				counts[b][p.state]++
			}
		}
	}
	for b := range bins {
		title, shown := summary(counts[b])
		if shown == "" {
			continue
		}
		x, w := round(float64(b)*100/bins), round(100.0/bins)
		if n := len(row.Segments); n > 0 && row.Segments[n-1].State == string(shown) && row.Segments[n-1].Title == row.Label+": "+title {
			row.Segments[n-1].W = round(x + w - row.Segments[n-1].X)
			continue
		}
		row.Segments = append(row.Segments, Segment{X: x, W: w, State: string(shown), Title: row.Label + ": " + title})
	}
	return row
}

// summary returns how many replicas are in each state as text, and the state to show: the most urgent one that at least
// a tenth of the replicas are in.
func summary(count map[state]int) (string, state) {
	sum, text := 0, ""
	for _, n := range count {
		sum += n
	}
	for _, s := range stateOrder {
		if n := count[s]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, s)
		}
	}
	i := slices.IndexFunc(urgency, func(s state) bool { return 10*count[s] >= sum && count[s] > 0 })
	if i < 0 {
		return text, ""
	}
	return text, urgency[i]
}
