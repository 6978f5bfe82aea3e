package core

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	clusters = flag.Int("clusters", 3_000, "number of random clusters")
	seed     = flag.Uint64("seed", 0, "take this cluster alone")
)

// TestProperties verifies the invariants in random clusters, which run until all their work has finished. A failure
// prints the seed of its cluster.
func TestProperties(t *testing.T) {
	if *seed != 0 {
		newLife(t, *seed).run()
		return
	}
	stats := map[string]int{}
	for s := uint64(1); s <= uint64(*clusters); s++ {
		l := newLife(t, s)
		l.run()
		for k, v := range l.stats {
			stats[k] += v
		}
		if t.Failed() {
			t.Fatalf("seed %d", s)
		}
	}
	t.Log(*clusters, "clusters:", stats)
	for _, k := range []string{"gangs", "extras", "evictions", "gangs evicted", "reservations", "quota", "topology"} {
		if stats[k] < *clusters/100 {
			t.Errorf("%s: only %d: the clusters do not cover that", k, stats[k])
		}
	}
}

type before struct {
	lacks   need
	started bool
}

// check runs a round and checks the invariants on its decisions.
func (l *life) check() {
	was, usedBefore, ending := map[*Group]before{}, used(l.cluster.Groups), map[*Pod]bool{}
	plain := &round{Cluster: &l.cluster}
	for _, g := range l.cluster.Groups {
		was[g] = before{lacks: plain.lacks(g), started: plain.started(g)}
		waits := slices.ContainsFunc(g.Pods, func(p *Pod) bool { return p.Node == "" })
		if lacks := plain.lacks(g).total; !waits || lacks == 0 {
			g.Since = time.Time{}
		} else if g.Since.IsZero() {
			g.Since = l.cluster.Now
		}
		for _, p := range g.Pods {
			ending[p] = p.Ending
		}
	}
	kept := slices.ContainsFunc(l.cluster.Groups, func(g *Group) bool { return g.Reservation != nil })
	decisions := l.round(l.t)
	usedAfter := used(l.cluster.Groups)
	for _, name := range sortedKeys(decisions) {
		d := decisions[name]
		l.checkGangs(d, was[d.Group])
		l.checkReservation(d, ending)
		if d.Reason == Impossible { // every group that arrives could run if it were alone
			l.errorf("group %s has the verdict impossible: %s", d.Group.Name, d.Message)
		}
		for _, gang := range d.Gangs {
			for _, at := range gang {
				l.ends[at.Pod] = l.step + 1 + l.rand.IntN(8)
			}
		}
	}
	for name, q := range l.cluster.Queues {
		if u := usedAfter[name]["cpu"]; q.Quota != nil && u > q.Quota["cpu"] && u > usedBefore[name]["cpu"] {
			l.errorf("queue %s uses %d of %d", name, u, q.Quota["cpu"])
		}
	}
	l.checkNodes()
	if !kept { // a dropped reservation may have freed room after a group was tried
		l.checkConserving(decisions)
	}
	l.checkOrder(decisions)
}

// checkGangs checks that a group starts with all of its minimum or not at all, that pods beyond the minimum are bound
// one by one, and that a group with the policy Required is in one domain.
func (l *life) checkGangs(d *Decision, was before) {
	g := d.Group
	for i, gang := range d.Gangs {
		size := 1
		if i == 0 && was.lacks.total > 0 {
			size = was.lacks.total
			l.stats["gangs"]++
			roles := map[string]int{}
			for _, at := range gang {
				roles[at.Pod.Role]++
			}
			for role, v := range was.lacks.roles {
				if roles[role] < v {
					l.errorf("group %s starts with %d pods of role %s, want %d", g.Name, roles[role], role, v)
				}
			}
		} else {
			l.stats["extras"]++
		}
		if len(gang) != size {
			l.errorf("group %s: %d pods are bound together, want %d", g.Name, len(gang), size)
		}
	}
	if len(d.Gangs) > 0 && g.Topology == Required {
		l.stats["topology"]++
		domains := map[string]bool{}
		for _, p := range g.Pods {
			if p.Node != "" && !p.Ending {
				domains[l.node(p.Node).domain] = true
			}
		}
		if len(domains) != 1 {
			l.errorf("group %s is spread over %v", g.Name, domains)
		}
	}
	if d.Reason == QuotaExceeded {
		l.stats["quota"]++
	}
}

// checkReservation checks that a group evicts pods only together with a reservation that waits for a preemption, that
// it evicts only pods that may be evicted, that it fits without them, and that at least one eviction in each group that
// loses pods is necessary.
func (l *life) checkReservation(d *Decision, ending map[*Pod]bool) {
	res := d.Reservation
	if res == nil {
		if len(d.Evict) > 0 {
			l.errorf("group %s evicts %v and gets nothing", d.Group.Name, names(d.Evict))
		}
		return
	}
	if !res.Evicts {
		l.stats["reservations"]++
		if len(d.Evict) > 0 {
			l.errorf("group %s evicts %v to reserve room", d.Group.Name, names(d.Evict))
		}
	}
	if len(d.Evict) == 0 {
		return
	}
	gone := map[*Pod]bool{}
	for _, p := range res.Blockers {
		gone[p] = true
	}
	l.stats["evictions"] += len(d.Evict)
	for _, g := range l.cluster.Groups {
		l.checkVictim(d, g, gone)
	}
	for p := range ending {
		if ending[p] {
			gone[p] = true
		}
	}
	for _, g := range l.cluster.Groups { // later reservations depend on this one
		if g.Reservation != nil && g.Reservation.Order > res.Order {
			for _, at := range g.Reservation.Placements {
				gone[at.Pod] = true
			}
		}
	}
	if !l.reservationFits(res, gone) {
		l.errorf("group %s does not fit after its evictions", d.Group.Name)
	}
}

// checkVictim checks that a group g loses only pods that may be evicted, that it then has either its minimum or no pod
// left if it had its minimum before, and that at least one of the evictions is necessary.
func (l *life) checkVictim(d *Decision, g *Group, gone map[*Pod]bool) {
	evicted, rest := losses(d, g)
	if evicted == 0 {
		return
	}
	q, v := l.cluster.Queues[d.Group.Queue], l.cluster.Queues[g.Queue]
	if !v.Preemptible || v.Priority >= q.Priority {
		l.errorf("queue %s evicts from queue %s", q.Name, v.Name)
	}
	if rest > 0 && rest < g.Min && rest+evicted >= g.Min && len(g.Finished) == 0 {
		l.errorf("%s leaves %d of gang %s", d.Group.Name, rest, g.Name)
	}
	if rest == 0 && evicted > 1 {
		l.stats["gangs evicted"]++
	}
	if !l.reservationFits(d.Reservation, gone) {
		return
	}
	without := maps.Clone(gone) // the eviction of at least one of these pods must be necessary
	for _, p := range d.Evict {
		if slices.Contains(g.Pods, p) {
			delete(without, p)
		}
	}
	if l.reservationFits(d.Reservation, without) {
		l.errorf("%s evicts pods of %s needlessly", d.Group.Name, g.Name)
	}
}

// losses returns the number of pods of a group that a decision evicts, and the number of the other pods that have a
// node and are not terminating.
func losses(d *Decision, g *Group) (evicted, rest int) {
	for _, p := range g.Pods {
		switch {
		case slices.Contains(d.Evict, p):
			evicted++
		case p.Node != "" && !p.Ending:
			rest++
		}
	}
	return evicted, rest
}

// reservationFits reports whether the pods of a reservation fit on their planned nodes when the pods in gone no longer
// exist. Room reserved for other groups counts as used.
func (l *life) reservationFits(res *Reservation, gone map[*Pod]bool) bool {
	for _, at := range res.Placements {
		n := l.node(at.Node)
		used := Resources{}
		for p := range n.pods {
			if gone[p] {
				continue
			}
			used.add(p.Requests, 1)
			if at.Pod.Shape == "" && p != at.Pod && p.Role == at.Pod.Role {
				return false
			}
		}
		if used["cpu"] > n.size["cpu"] {
			return false
		}
	}
	return true
}

// checkNodes checks that bound pods fit their nodes, and that nodes hold only pods that are bound or reserved.
func (l *life) checkNodes() {
	on := map[*Pod]string{}
	for _, g := range l.cluster.Groups {
		for _, p := range g.Pods {
			if p.Node != "" {
				on[p] = p.Node
			}
		}
	}
	reserved := map[*Pod]string{}
	for _, g := range l.cluster.Groups {
		if g.Reservation != nil {
			for _, at := range g.Reservation.Placements {
				reserved[at.Pod] = at.Node
			}
		}
	}
	for _, n := range l.nodes {
		l.checkNode(n, on, reserved)
	}
}

func (l *life) checkNode(n *node, on, reserved map[*Pod]string) {
	used := Resources{}
	for p := range n.pods {
		if on[p] != n.name && reserved[p] != n.name {
			l.errorf("%s is on %s and should not be", p.Name, n.name)
		}
		if reserved[p] != "" {
			continue
		}
		used.add(p.Requests, 1)
		if class, _, _ := strings.Cut(p.Shape, "/"); class != "" && class != "any" && class != n.class {
			l.errorf("%s is on a node of the wrong class", p.Name)
		}
	}
	if used["cpu"] > n.size["cpu"] {
		l.errorf("node %s has %d CPUs and gives %d", n.name, n.size["cpu"], used["cpu"])
	}
}

// checkConserving checks that a group refused for lack of room still does not fit at the end of the round.
func (l *life) checkConserving(decisions map[string]*Decision) {
	for _, name := range sortedKeys(decisions) {
		d := decisions[name]
		if d.Reason != NoRoom || d.Reservation != nil || d.Group.Topology != "" {
			continue
		}
		r := &round{Cluster: &l.cluster, used: used(l.cluster.Groups), at: map[*Pod]string{}, fitLimits: map[string]fitLimit{}, simulating: true}
		for _, g := range l.cluster.Groups {
			if g.Reservation != nil {
				for _, at := range g.Reservation.Placements {
					r.used[g.Queue].add(at.Pod.Requests, 1)
				}
			}
		}
		n := r.lacks(d.Group)
		pods := r.candidates(d.Group)
		if mixed := slices.ContainsFunc(pods, func(p *Pod) bool { return p.Shape == "" && p.Role != pods[0].Role }); n.total == 0 || mixed {
			continue // if placement depends on other pods, the order matters
		}
		if no := r.gang(d.Group, n, pods, nil); no == nil {
			l.errorf("group %s waits (%s) and would fit", name, d.Message)
			r.rollback(0)
		}
	}
}

// checkOrder checks that the later of two equal groups in one queue does not overtake the earlier one.
func (l *life) checkOrder(decisions map[string]*Decision) {
	for _, a := range decisions {
		for _, b := range decisions {
			if overtakes(a, b) {
				l.errorf("%s starts before %s (%s: %s)", b.Group.Name, a.Group.Name, a.Reason, a.Message)
			}
		}
	}
}

// overtakes reports whether the group of b starts while the equal group of a, which comes first, waits.
func overtakes(a, b *Decision) bool {
	ga, gb := a.Group, b.Group
	if !alike(ga, gb) || len(a.Gangs) > 0 || bound(ga) > 0 || a.Reservation != nil {
		return false
	}
	started := 0
	for _, gang := range b.Gangs {
		started += len(gang)
	}
	return started > 0 && started == bound(gb) && compareGroups(ga, gb) < 0 && gb.Since.After(ga.Since)
}

func alike(a, b *Group) bool {
	same := a.Queue == b.Queue && a.Min == b.Min && a.Topology == b.Topology && len(a.Pods) == len(b.Pods)
	plain := len(a.Roles)+len(b.Roles)+len(a.Finished)+len(b.Finished) == 0
	return same && plain && len(a.Pods) > 0 && a.Pods[0].Shape != "" && a.Pods[0].Shape == b.Pods[0].Shape
}
