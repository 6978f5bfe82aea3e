package core

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// input is a copy of the parts of a cluster that Round reads.
type input struct {
	Queues       map[string]Queue
	Groups       []Group
	Pods         map[*Pod]Pod
	Reservations map[*Reservation]Reservation
	Used         map[string]Resources
	Domain       bool
}

// inputOf copies the input of a round.
func inputOf(c *Cluster) input {
	in := input{Queues: map[string]Queue{}, Pods: map[*Pod]Pod{}, Reservations: map[*Reservation]Reservation{}, Used: maps.Clone(c.Used), Domain: c.Domain != nil}
	for name, q := range c.Queues {
		in.Queues[name] = Queue{Name: q.Name, Quota: maps.Clone(q.Quota), Capacity: maps.Clone(q.Capacity), Priority: q.Priority,
			Preemptible: q.Preemptible, Closed: q.Closed, PodLimit: maps.Clone(q.PodLimit), Barred: q.Barred}
	}
	for name, used := range in.Used {
		in.Used[name] = maps.Clone(used)
	}
	for _, g := range c.Groups {
		o := *g
		o.Pods, o.Roles, o.Finished = slices.Clone(g.Pods), maps.Clone(g.Roles), maps.Clone(g.Finished)
		in.Groups = append(in.Groups, o)
		for _, p := range g.Pods {
			o := *p
			o.Requests = maps.Clone(p.Requests)
			in.Pods[p] = o
		}
		if res := g.Reservation; res != nil {
			o := *res
			o.Placements, o.Blockers, o.Victims = slices.Clone(res.Placements), slices.Clone(res.Blockers), slices.Clone(res.Victims)
			in.Reservations[res] = o
		}
	}
	return in
}

// roundOnly runs a round and verifies that it does not change its input. Calls of Nodes must be its only effects.
func roundOnly(t testing.TB, c *Cluster) Result {
	t.Helper()
	before := inputOf(c)
	result := Round(c)
	if after := inputOf(c); !reflect.DeepEqual(before, after) {
		t.Errorf("the round changed its input:\n%s", cmp.Diff(before, after))
	}
	return result
}

// TestRoundChangesOnlyNodes verifies that a round that evicts and a round that keeps a reservation do not change their
// input. Most other tests check this for their rounds too.
func TestRoundChangesOnlyNodes(t *testing.T) {
	w := newWorld().addNode(4, "", "").addNode(4, "", "")
	w.cluster.Domain = nil
	w.queue("low", 0, 0)
	w.queue("high", 0, 1)
	w.run(w.group("runs", "low", 1, 4), "n00")
	w.run(w.group("also", "low", 1, 4), "n01")
	w.group("gang", "high", 2, 4)
	for range 2 { // the second round keeps the reservation of the first round
		if d := w.round(t)["gang"]; d.Reservation == nil {
			t.Fatalf("nothing is reserved: %s: %s", d.Reason, d.Message)
		}
	}
}
