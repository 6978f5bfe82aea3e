package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// round is the state of one pass over the groups.
type round struct {
	*Cluster
	used map[string]Resources
	// at maps each waiting pod that has been placed to its node. bound and reserved are the placed pods that the round
	// binds, and those for which it reserves the room.
	at              map[*Pod]string
	bound, reserved map[*Pod]bool
	// reservations are the reservations of earlier rounds. A group is removed when it starts or loses its reservation.
	// Reservations that this round makes are not added.
	reservations map[*Group]*Reservation
	// evicted are the pods that this round evicts.
	evicted   map[*Pod]bool
	log       []step
	fitLimits map[string]fitLimit
	// knownFailures maps an equivalence key to the smallest need for which the round found no plan, even with all the
	// room that could be freed.
	knownFailures map[string]int
	// runs are the groups that hold room; nil until running sets it. lowest is the lowest priority among their
	// preemptible queues.
	runs   []*Group
	lowest int32
	// simulating is true while running pods are removed to test what would fit.
	simulating bool
	decisions  map[*Group]*Decision
	placed     int
	// order is the highest order of all reservations so far.
	order int
	// released is true if a reservation was dropped. Its room may have become free, and groups that were tried earlier
	// in this round did not see that room.
	released bool
	result   Result
}

// Round decides about all waiting groups. It tries the classes in this order: started gangs that lack pods, groups with
// a reservation, groups that have waited for ReserveAfter, all others. Within each class except the reservations,
// groups are ordered by queue priority, share, group priority and age. Round leaves on the nodes the pods that it binds
// or reserves, and changes nothing else of the cluster.
func Round(c *Cluster) Result {
	cluster := *c
	r := &round{Cluster: &cluster, used: c.usedNow(), at: map[*Pod]string{}, bound: map[*Pod]bool{}, reserved: map[*Pod]bool{}, reservations: map[*Group]*Reservation{},
		evicted: map[*Pod]bool{}, fitLimits: map[string]fitLimit{}, knownFailures: map[string]int{}, decisions: map[*Group]*Decision{}}
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
			r.serve(newPendingGroups(groups))
		}
	}
	r.result.More = r.result.More || r.released
	return r.result
}

// running lists the groups that hold room, and sets runs and lowest. The groups do not change within a round.
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

// class returns the class of a group. ok is false if the round must not try the group.
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

// starves reports whether a group has waited for at least ReserveAfter.
func (r *round) starves(g *Group) bool {
	return r.ReserveAfter > 0 && !g.Since.IsZero() && r.Now.Sub(g.Since) >= r.ReserveAfter
}

// serve tries the pending groups in their order. If the round has placed MaxPods pods, it ends the round and sets
// result.More.
func (r *round) serve(p *pendingGroups) {
	for g := p.next(r); g != nil; g = p.next(r) {
		if r.MaxPods > 0 && r.placed >= r.MaxPods {
			r.result.More = true
			return
		}
		if !r.try(g) {
			p.pop(g)
		}
	}
}

// serveReserved tries the groups with reservations, in the order of their reservations. Each may take room that only
// later reservations hold.
func (r *round) serveReserved(groups []*Group) {
	slices.SortFunc(groups, func(a, b *Group) int { return cmp.Compare(a.Reservation.Order, b.Reservation.Order) })
	for _, g := range groups {
		r.lift(g, r.reservations[g])
	}
	for _, g := range groups {
		for r.try(g) {
		}
	}
}

// decide returns the decision for a group. The first call for the group creates the decision.
func (r *round) decide(g *Group) *Decision {
	d := r.decisions[g]
	if d == nil {
		d = &Decision{Group: g, Reason: Scheduled}
		r.decisions[g] = d
		r.result.Decisions = append(r.result.Decisions, d)
	}
	return d
}

// refuse records in the decision why the group waits.
func (d *Decision) refuse(reason Reason, format string, args ...any) {
	d.Reason, d.Message, d.LacksNodes = reason, fmt.Sprintf(format, args...), reason == NoRoom
}

// try does one step for a group and reports whether the group needs another step.
func (r *round) try(g *Group) (again bool) {
	d, n := r.decide(g), r.lacks(g)
	d.Extra = n.total == 0
	pods, refused := r.admitted(g, d, n)
	switch {
	case refused, len(pods) == 0:
	case n.total == 0:
		r.dropReservation(g)
		return r.placeExtra(g, d, pods)
	case n.missing(g, pods) != "":
		d.refuse(NotEnoughMembers, "%s", n.missing(g, pods))
	default:
		return r.start(g, d, n, pods)
	}
	r.dropReservation(g)
	return false
}

// admitted returns the waiting pods of a group that its queue admits. If the group may not start at all, or too few of
// its pods may, refused is true and d has the reason.
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

// dropReservation drops the reservation of a group, if it has one. The caller has already freed its room with lift.
// dropReservation also clears the log, so that the steps so far cannot be rolled back.
func (r *round) dropReservation(g *Group) {
	if r.reservations[g] != nil {
		delete(r.reservations, g)
		r.released = true
	}
	r.log = nil
}

// start places a gang. If the gang does not fit, start plans evictions or a reservation for it, or records why it
// waits, and evicts the gang if it is stranded. It reports whether more pods of the group wait for a node in this
// round.
func (r *round) start(g *Group, d *Decision, n need, pods []*Pod) (again bool) {
	no := r.gang(g, n, pods, nil)
	if no == nil {
		r.dropReservation(g)
		return r.commit(g, d)
	}
	if never := r.impossible(g, n, pods); never != nil {
		r.dropReservation(g)
		d.refuse(never.reason, "%s", never.message)
		d.LacksNodes = no.reason == NoRoom
		r.evictStranded(g, d)
		return false
	}
	if res := r.reservations[g]; res != nil && res.pending() && (!res.Evicts || no.reason == NoRoom && !r.abandoned(res)) {
		r.keep(g, res)
		r.waitFor(d, res)
		return false
	}
	r.dropReservation(g)
	d.refuse(no.reason, "%s", no.message)
	if r.preempt(g, d, n, pods, no) || r.replace(g, d, n, pods) || r.reserve(g, d, n, pods) {
		return false
	}
	r.evictStranded(g, d)
	return false
}

// evictStranded evicts the bound pods of a gang that has been partly bound for at least Grace and was never bound as a
// whole.
func (r *round) evictStranded(g *Group, d *Decision) {
	if !g.Complete && r.Grace > 0 && !g.Partial.IsZero() && r.Now.Sub(g.Partial) >= r.Grace {
		d.Evict = append(d.Evict, r.stranded(g)...)
	}
}

// stranded returns the bound pods of a gang. The caller knows that the gang was never bound as a whole, so these pods
// hold room without use.
func (r *round) stranded(g *Group) []*Pod {
	var all []*Pod
	for _, p := range g.Pods {
		if p.Node != "" && r.stays(p) {
			all = append(all, p)
		}
	}
	return all
}

// commit binds the pods that have been placed for a group. It reports whether more pods of the group wait.
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

// placeExtra places one pod beyond the minimum. It reports whether more pods of the group wait for a node in this
// round.
func (r *round) placeExtra(g *Group, d *Decision, pods []*Pod) (again bool) {
	among := r.whereMore(g)
	var where nodesFor
	if among != nil {
		where = func(*Pod) func(string) bool { return among }
	}
	for _, p := range pods {
		no := r.fill(g, need{total: 1}, []*Pod{p}, where)
		if no == nil {
			return r.commit(g, d)
		}
		d.refuse(no.reason, "%s", no.message)
	}
	return false
}
