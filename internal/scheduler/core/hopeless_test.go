package core

import (
	"fmt"
	"testing"
)

// counted is a world that counts how often pods are removed from nodes.
type counted struct {
	*world
	taken int
}

func (c *counted) Take(p *Pod, node string) {
	c.taken++
	c.world.Take(p, node)
}

// TestFailedSearchForRoomIsNotRepeated verifies that a search for room that failed for one group is not repeated for
// equivalent groups, unless they need less.
func TestFailedSearchForRoomIsNotRepeated(t *testing.T) {
	run := func(hopeless int) int {
		w := newWorld()
		w.cluster.Sites = nil // with sites the groups would be Impossible
		for range 8 {
			w.addNode(4, "", "")
		}
		w.queue("low", 0, 0)
		w.queue("high", 0, 1)
		for i := range 8 {
			w.run(w.group(fmt.Sprint("runs", i), "low", 1, 3), fmt.Sprintf("n%02d", i))
		}
		for i := range hopeless {
			w.group(fmt.Sprint("hopeless", i), "high", 9, 3)
		}
		c := &counted{world: w}
		w.cluster.Nodes = c
		small := w.group("small", "high", 8, 3)
		d := w.round(t)
		if got := len(d["small"].Evict); got != 8 || small.Reservation == nil {
			t.Errorf("beside %d hopeless groups, %d pods are evicted for a group that fits after that", hopeless, got)
		}
		if hopeless > 0 && d["hopeless0"].Reason != NoRoom {
			t.Errorf("a hopeless group: %+v", d["hopeless0"])
		}
		return c.taken
	}
	one, many := run(1), run(20)
	if one != many {
		t.Errorf("with one hopeless group pods are removed %d times, with 20 %d times", one, many)
	}
	if none := run(0); none == 0 || none >= one {
		t.Errorf("without a hopeless group pods are removed %d times, with one %d times", none, one)
	}
}
