package core

import (
	"fmt"
	"slices"
)

// keep places the pods of a reservation on their planned nodes, so that no other pod takes that room. This cannot be
// rolled back.
func (r *round) keep(g *Group, res *Reservation) {
	r.order = max(r.order, res.Order)
	for _, at := range res.Placements {
		r.put(g, at.Pod, at.Node)
		r.reserved[at.Pod] = true
	}
	r.log = nil
}

// lift frees the room of a reservation, so that the round can test whether its group can start now. This cannot be
// rolled back. What the round has learned about lack of room is forgotten.
func (r *round) lift(g *Group, res *Reservation) {
	for _, at := range res.Placements {
		r.take(g, at.Pod, at.Node)
		delete(r.reserved, at.Pod)
	}
	clear(r.fitLimits) // more room is free now
	clear(r.knownFailures)
	r.log = nil
}

// pending reports whether a blocker of the reservation still holds room.
func (res *Reservation) pending() bool {
	return slices.ContainsFunc(res.Blockers, func(p *Pod) bool { return !p.Gone })
}

// abandoned reports whether a preempting reservation waits for a pod that will not terminate: another group was to
// evict that pod, the eviction failed, and the other group no longer needs it.
func (r *round) abandoned(res *Reservation) bool {
	return slices.ContainsFunc(res.Blockers, func(p *Pod) bool {
		if p.Gone || p.Ending || r.evicted[p] {
			return false
		}
		for _, other := range r.reservations {
			if slices.Contains(other.Victims, p) {
				return false
			}
		}
		return true
	})
}

// waitFor records in the decision that the group waits for the blockers of its reservation. It evicts the victims that
// are not terminating yet.
func (r *round) waitFor(d *Decision, res *Reservation) {
	d.Reservation = res
	left := 0
	for _, p := range res.Blockers {
		if !p.Gone {
			left++
		}
	}
	for _, p := range res.Victims {
		if !p.Gone && !p.Ending && !r.evicted[p] {
			d.Evict = append(d.Evict, p)
			r.evicted[p] = true
		}
	}
	if res.Evicts {
		d.refuse(Preempting, "waits for the end of %s; the scheduler evicts pods of lower queues for it", count(left, "pod"))
	} else {
		d.refuse(Reserved, "room is reserved for it: it waits for the end of %s", count(left, "pod"))
	}
}

// count returns n and the noun, in the plural unless n is 1.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
