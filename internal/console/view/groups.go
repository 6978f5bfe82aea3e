package view

import (
	"fmt"
	"slices"
	"time"
)

// bins is the number of moments at which lanes of groups are looked at.
const bins = 120

// urgency lists the states, the one first that a lane of a group shows if any of its replicas is in it.
var urgency = []state{stateFailed, stateEvicted, stateRestarting, stateQueued, stateStarting, stateStopped, stateRunning, stateSucceeded, statePaused}

// choice returns the state that a lane of a group shows at a moment, and its shade in a heat map. The state is empty if
// no replica is in any.
type choice func(count map[state]int, sum int) (state, int)

// group draws the lanes of many replicas: those of one role with neighbouring ranks share one of about rows lanes, which
// shows what choose returns at each moment, and how many replicas are in each state.
func (t *Timeline) group(lanes []lane, s scale, rows int, choose choice) {
	t.Grouped = (len(lanes) + rows - 1) / rows
	for first := 0; first < len(lanes); {
		next := first
		for next < len(lanes) && next-first < t.Grouped && lanes[next].role == lanes[first].role {
			next++
		}
		t.Lanes = append(t.Lanes, drawGroup(lanes[first:next], s, t.End, choose))
		first = next
	}
}

func drawGroup(lanes []lane, s scale, end time.Time, choose choice) Lane {
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
		title, sum := summary(counts[b])
		shown, heat := choose(counts[b], sum)
		if shown == "" || shown == statePaused {
			continue
		}
		x, w := round(float64(b)*100/bins), round(100.0/bins)
		if n := len(row.Segments); n > 0 && row.Segments[n-1].State == string(shown) && row.Segments[n-1].Title == row.Label+": "+title {
			row.Segments[n-1].W = round(x + w - row.Segments[n-1].X)
			continue
		}
		row.Segments = append(row.Segments, Segment{X: x, W: w, State: string(shown), Title: row.Label + ": " + title, Heat: heat})
	}
	return row
}

// summary returns how many replicas are in each state as text, and how many are in any.
func summary(count map[state]int) (text string, sum int) {
	for _, s := range stateOrder {
		if n := count[s]; n > 0 {
			sum += n
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, s)
		}
	}
	return text, sum
}

// mostUrgent chooses the most urgent state that at least a tenth of the replicas are in.
func mostUrgent(count map[state]int, sum int) (state, int) {
	i := slices.IndexFunc(urgency, func(s state) bool { return 10*count[s] >= sum && count[s] > 0 })
	if i < 0 {
		return "", 0
	}
	return urgency[i], 0
}

// troubles are the states that a heat map shows even if a single replica is in them.
var troubles = []state{stateFailed, stateEvicted, stateRestarting}

// hottest chooses the most urgent trouble, or else the state that most replicas are in. The shade is the share of the
// replicas that are in it.
func hottest(count map[state]int, sum int) (state, int) {
	if sum == 0 {
		return "", 0
	}
	var shown state
	for _, s := range urgency {
		if count[s] > 0 && slices.Contains(troubles, s) {
			shown = s
			break
		}
		if count[s] > count[shown] {
			shown = s
		}
	}
	return shown, min(4, 1+4*count[shown]/sum)
}
