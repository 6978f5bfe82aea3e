package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// round is one pass over the groups.
type round struct {
	*Cluster
	used map[string]Resources
	// at is where pods without a node have been placed; bound and reserved are those of them that stay there.
	at              map[*Pod]string
	bound, reserved map[*Pod]bool
	// reservations are those of groups, until they have the room or lose it.
	reservations map[*Group]*Reservation
	// leaving are pods that this round evicts.
	leaving map[*Pod]bool
	log     []step
	misfits map[string]misfit
	// hopeless are the smallest gangs, by shape, that did not fit even with all room that could be made for them.
	hopeless map[string]int
	// runs are the groups that hold room, once they have been asked for; lowest is the lowest priority of those of their queues
	// from which room may be taken.
	runs   []*Group
	lowest int32
	// simulating: pods that run have been taken away to see what would fit then.
	simulating bool
	decisions  map[*Group]*Decision
	placed     int
	// order is that of the last room that was given.
	order int
	// released: room that was kept is free again, which groups before did not see.
	released bool
	result   Result
}

// Round decides about all groups that wait: first those that lack pods of a gang that runs, then those for which room is
// kept, then those that waited for too long, then all others; each in the order of queue priority, share, group priority and
// age. It leaves on the nodes what it says is to be bound or reserved, and changes nothing else of the cluster.
func Round(c *Cluster) Result {
	r := &round{Cluster: c, used: c.usedNow(), at: map[*Pod]string{}, bound: map[*Pod]bool{}, reserved: map[*Pod]bool{}, reservations: map[*Group]*Reservation{},
		leaving: map[*Pod]bool{}, misfits: map[string]misfit{}, hopeless: map[string]int{}, decisions: map[*Group]*Decision{}}
	if r.Domain == nil {
		r.Domain = func(string) string { return "" }
	}
	for _, g := range c.Groups {
		if g.Reservation != nil {
			r.keep(g, g.Reservation)
			r.reservations[g] = g.Reservation
		}
	}
	var classes [classOther + 1][]*Group
	for _, g := range c.Groups {
		if class, ok := r.class(g); ok {
			classes[class] = append(classes[class], g)
		}
	}
	for class, groups := range classes {
		if r.result.More {
			break
		}
		if class == classReserved {
			r.serveReserved(groups)
		} else {
			r.serve(newLine(groups))
		}
	}
	r.result.More = r.result.More || r.released
	return r.result
}

// running lists the groups that hold room, which do not change within a round.
func (r *round) running() []*Group {
	if r.runs != nil {
		return r.runs
	}
	all := r.Groups
	if r.Running != nil {
		all = r.Running()
	}
	r.runs, r.lowest = []*Group{}, math.MaxInt32
	for _, g := range all {
		if !slices.ContainsFunc(g.Pods, func(p *Pod) bool { return p.Node != "" }) {
			continue
		}
		r.runs = append(r.runs, g)
		if q := r.Queues[g.Queue]; q != nil && q.Preemptible {
			r.lowest = min(r.lowest, q.Priority)
		}
	}
	return r.runs
}

// Classes of groups, in the order in which they are tried.
const (
	classShort = iota
	classReserved
	classStarving
	classOther
)

// class of a group; ok is false for those that are not to be tried.
func (r *round) class(g *Group) (class int, ok bool) {
	if r.Skip != nil && r.Skip(g) {
		return 0, false
	}
	waits := slices.ContainsFunc(g.Pods, r.waits)
	switch {
	case g.Reservation != nil:
		return classReserved, true
	case !waits:
		return 0, false
	case r.started(g) && r.lacks(g).total > 0:
		return classShort, true
	case r.starves(g):
		return classStarving, true
	}
	return classOther, true
}

func (r *round) starves(g *Group) bool {
	return r.ReserveAfter > 0 && !g.Since.IsZero() && r.Now.Sub(g.Since) >= r.ReserveAfter
}

func (r *round) serve(l *line) {
	for g := l.next(r); g != nil; g = l.next(r) {
		if r.MaxPods > 0 && r.placed >= r.MaxPods {
			r.result.More = true
			return
		}
		if !r.try(g) {
			l.drop(g)
		}
	}
}

// serveReserved tries the groups for which room is kept. Each may have what only later reservations take.
func (r *round) serveReserved(groups []*Group) {
	slices.SortFunc(groups, func(a, b *Group) int { return cmp.Compare(a.Reservation.Order, b.Reservation.Order) })
	for _, g := range groups {
		r.lift(r.reservations[g])
	}
	for _, g := range groups {
		for r.try(g) {
		}
	}
}

func (r *round) decide(g *Group) *Decision {
	d := r.decisions[g]
	if d == nil {
		d = &Decision{Group: g, Reason: Scheduled}
		r.decisions[g] = d
		r.result.Decisions = append(r.result.Decisions, d)
	}
	return d
}

func (d *Decision) refuse(reason Reason, format string, args ...any) {
	d.Reason, d.Message, d.LacksNodes = reason, fmt.Sprintf(format, args...), reason == NoRoom
}

// try does one step for a group and tells whether there is another one to do.
func (r *round) try(g *Group) (again bool) {
	d, n := r.decide(g), r.lacks(g)
	d.Extra = n.total == 0
	pods, refused := r.admitted(g, d, n)
	switch {
	case refused, len(pods) == 0:
	case n.total == 0:
		r.settle(g)
		return r.more(g, d, pods)
	case n.missing(g, pods) != "":
		d.refuse(NotEnoughMembers, "%s", n.missing(g, pods))
	default:
		return r.start(g, d, n, pods)
	}
	r.settle(g)
	return false
}

// admitted lists the pods of a group that its queue takes, or refuses the group if it does not take enough of them.
func (r *round) admitted(g *Group, d *Decision, n need) (pods []*Pod, refused bool) {
	q := r.Queues[g.Queue]
	if q == nil {
		d.refuse(QueueNotFound, "queue %s does not exist", g.Queue)
		return nil, true
	}
	pods, barred := r.allowed(g)
	pods, tooLarge := q.admitted(pods)
	short := len(pods) == 0 || n.missing(g, pods) != ""
	switch {
	case q.Closed && !r.started(g):
		d.refuse(QueueClosed, "queue %s is closed: no new group starts in it", q.Name)
	case g.Barred != "" && !r.started(g):
		d.refuse(NotAdmitted, "%s", g.Barred)
	case barred != "" && short:
		d.refuse(NotAdmitted, "%s", barred)
	case q.Barred != "" && len(pods) > 0:
		d.refuse(ShapeUnknown, "%s", q.Barred)
	case tooLarge != "" && short:
		d.refuse(PodTooLarge, "%s", tooLarge)
	default:
		return pods, false
	}
	return nil, true
}

// settle lets the room go that was kept for a group and lifted.
func (r *round) settle(g *Group) {
	if r.reservations[g] != nil {
		delete(r.reservations, g)
		r.released = true
	}
	r.log = nil
}

// start places a gang, or finds room that it can have later.
func (r *round) start(g *Group, d *Decision, n need, pods []*Pod) (again bool) {
	no := r.gang(g, n, pods, nil)
	if no == nil {
		r.settle(g)
		return r.commit(g, d)
	}
	if never := r.impossible(g, n, pods); never != nil {
		r.settle(g)
		d.refuse(never.reason, "%s", never.message)
		d.LacksNodes = no.reason == NoRoom
		r.evictStranded(g, d)
		return false
	}
	if res := r.reservations[g]; res != nil && res.pending() && (!res.Preempting || no.reason == NoRoom) {
		r.keep(g, res)
		r.waitFor(d, res)
		return false
	}
	r.settle(g)
	d.refuse(no.reason, "%s", no.message)
	if r.preempt(g, d, n, pods, no) || r.replace(g, d, n, pods) || r.reserve(g, d, n, pods) {
		return false
	}
	r.evictStranded(g, d)
	return false
}

// evictStranded gives up on a gang that has been bound in part only for too long.
func (r *round) evictStranded(g *Group, d *Decision) {
	if !g.Complete && r.Grace > 0 && !g.Partial.IsZero() && r.Now.Sub(g.Partial) >= r.Grace {
		d.Evict = append(d.Evict, r.stranded(g)...)
	}
}

// stranded are the pods of a gang that was never bound as a whole: they hold room that is of no use.
func (r *round) stranded(g *Group) []*Pod {
	var all []*Pod
	for _, p := range g.Pods {
		if p.Node != "" && r.stays(p) {
			all = append(all, p)
		}
	}
	return all
}

// commit makes what was placed for a group final.
func (r *round) commit(g *Group, d *Decision) (again bool) {
	gang := r.planned(g)
	for _, at := range gang {
		r.bound[at.Pod] = true
	}
	r.placed += len(gang)
	r.log = nil
	d.Gangs = append(d.Gangs, gang)
	d.Reason, d.Message, d.LacksNodes = Scheduled, "", false
	return slices.ContainsFunc(g.Pods, r.waits)
}

// more places one pod beyond the minimum.
func (r *round) more(g *Group, d *Decision, pods []*Pod) (again bool) {
	among := r.whereMore(g)
	var pick pick
	if among != nil {
		pick = func(*Pod) func(string) bool { return among }
	}
	for _, p := range pods {
		no := r.fill(g, need{total: 1}, []*Pod{p}, pick)
		if no == nil {
			return r.commit(g, d)
		}
		d.refuse(no.reason, "%s", no.message)
	}
	return false
}
