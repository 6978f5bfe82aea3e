package view

import (
	"fmt"
	"slices"
	"time"
)

// bins is the number of intervals into which grouped lanes divide the time.
const bins = 120

// urgency lists the states in descending order of urgency.
var urgency = []state{stateFailed, stateEvicted, stateRestarting, stateQueued, stateStarting, stateStopped, stateRunning, stateSucceeded, statePaused}

// choice returns the state that a grouped lane shows in an interval, and its shade: 1 to 4 in a heat map, 0 otherwise.
// count holds the number of replicas in each state, and sum their total. A replica that changes its state in the
// interval counts for each of these states. The returned state is empty, with the shade 0, if no replica has a state.
type choice func(count map[state]int, sum int) (state, int)

// group draws many replicas in about rows lanes, and sets Grouped. Replicas of one role with neighbouring ranks share a
// lane. For each interval, the lane shows the result of choose, and as its title the number of replicas in each state.
// If choose returns no state or statePaused, the interval stays empty.
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

// summary returns the number of replicas in each state as text, and the total.
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

// mostUrgent implements choice. It returns the most urgent of the states that at least a tenth of the replicas have.
func mostUrgent(count map[state]int, sum int) (state, int) {
	i := slices.IndexFunc(urgency, func(s state) bool { return 10*count[s] >= sum && count[s] > 0 })
	if i < 0 {
		return "", 0
	}
	return urgency[i], 0
}

// troubles are the states that a heat map shows even if only a single replica is in them.
var troubles = []state{stateFailed, stateEvicted, stateRestarting}

// hottest implements choice. It returns the most urgent of troubles if any replica has one, and otherwise the most
// frequent state. The shade grows with the share of replicas in that state.
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
