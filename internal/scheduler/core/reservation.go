package core

import (
	"fmt"
	"slices"
)

// keep puts the pods of a reservation where they are to go, so that nothing else takes that room.
func (r *round) keep(g *Group, res *Reservation) {
	res.group = g
	r.order = max(r.order, res.Order)
	for _, at := range res.Placements {
		r.put(g, at.Pod, at.Node)
		r.reserved[at.Pod] = true
	}
	r.log = nil
}

// lift takes kept room away, to see whether its group fits now.
func (r *round) lift(res *Reservation) {
	for _, at := range res.Placements {
		r.take(res.group, at.Pod, at.Node)
		delete(r.reserved, at.Pod)
	}
	clear(r.misfits) // what did not fit before may fit now
	clear(r.hopeless)
	r.log = nil
}

// pending tells whether one of those who block a reservation is still there.
func (res *Reservation) pending() bool {
	return slices.ContainsFunc(res.Blockers, func(p *Pod) bool { return !p.Gone })
}

// waitFor says in a decision whose end a group waits for, and evicts them if that is how it goes.
func (r *round) waitFor(d *Decision, res *Reservation) {
	d.Reservation = res
	left := 0
	for _, p := range res.Blockers {
		if p.Gone {
			continue
		}
		left++
		if res.Preempting && !p.Ending {
			d.Evict = append(d.Evict, p)
			r.leaving[p] = true
		}
	}
	if res.Preempting {
		d.refuse(Preempting, "waits for %s of lower queues to end, which are evicted for it", count(left, "pod"))
	} else {
		d.refuse(Reserved, "room is kept for it: it starts when %s have ended", count(left, "pod"))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
