package core

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// evictionUnit is a set of pods that leave their nodes together. For an eviction, it is one pod beyond the minimum of
// its group, or all other pods of the group. If the pods terminate by themselves, it is one pod.
type evictionUnit struct {
	group *Group
	pods  []*Pod
	// rest is true if the group falls below its minimum without this unit.
	rest bool
	// ends is true if the pods are already terminating and need not be evicted.
	ends bool
}

// preempt plans evictions from lower queues for a group that fits only after them. It reports whether it has decided
// about the group.
func (r *round) preempt(g *Group, d *Decision, n need, pods []*Pod, no *refusal) bool {
	if no.reason != NoRoom || !r.couldFit(g, n, pods) {
		return false
	}
	victims := r.victims(r.Queues[g.Queue])
	if len(victims) == 0 {
		return false
	}
	return r.unlessKnownToFail("evicting", g, n, pods, func() bool {
		return r.displace(g, d, n, pods, append(r.endings(g), victims...), true)
	})
}

// unlessKnownToFail calls try for a group and returns its result. It returns false without a call if the same attempt
// failed in this round for an equivalent group that needed at most as many pods.
func (r *round) unlessKnownToFail(how string, g *Group, n need, pods []*Pod, try func() bool) bool {
	key := r.equivalenceKey(g, n, pods)
	if key == "" {
		return try()
	}
	key = how + "\x00" + key
	if least, ok := r.knownFailures[key]; ok && n.total >= least {
		return false
	}
	if try() {
		return true
	}
	r.knownFailures[key] = n.total
	return false
}

// equivalenceKey returns a key that is equal for equivalent groups: if one fits, another that lacks no more pods fits
// too. It is empty if the group cannot be compared.
func (r *round) equivalenceKey(g *Group, n need, pods []*Pod) string {
	mine := func(p *Pod) bool { return p.Node != "" } // other groups can evict these pods, but the group itself cannot
	if r.Shapeless || g.Topology != "" || slices.ContainsFunc(g.Pods, mine) {
		return ""
	}
	if shape := uniform(g, pods); shape != "" {
		return shape
	}
	counts := map[string]int{}
	for _, p := range pods {
		if p.Shape == "" {
			return ""
		}
		counts[p.Role+"\x00"+p.Shape]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%d", g.Queue, n.total)
	for _, role := range sortedKeys(n.roles) {
		fmt.Fprintf(&b, "\x00%s=%d", role, n.roles[role])
	}
	for _, shape := range sortedKeys(counts) {
		fmt.Fprintf(&b, "\x00%s×%d", shape, counts[shape])
	}
	return b.String()
}

// replace reserves the room of terminating pods for a started gang that lacks pods. It reports whether it has decided
// about the gang.
func (r *round) replace(g *Group, d *Decision, n need, pods []*Pod) bool {
	if !r.started(g) || !r.couldFit(g, n, pods) {
		return false
	}
	units := r.endings(g)
	return len(units) > 0 && r.displace(g, d, n, pods, units, false)
}

// reserve reserves room for a group that has waited for ReserveAfter. The group gets the room when the pods that use it
// terminate. reserve reports whether it has decided about the group.
func (r *round) reserve(g *Group, d *Decision, n need, pods []*Pod) bool {
	if !r.starves(g) || !r.couldFit(g, n, pods) {
		return false
	}
	units := r.endings(g)
	for _, o := range r.running() {
		for _, p := range o.Pods {
			if o != g && p.Node != "" && !p.Ending && !r.evicted[p] {
				units = append(units, evictionUnit{group: o, pods: []*Pod{p}})
			}
		}
	}
	return r.unlessKnownToFail("waiting", g, n, pods, func() bool { return r.displace(g, d, n, pods, units, false) })
}

// couldFit reports whether the minimum of the group is within the whole quota of its queue and the capacity of the
// queue's nodes.
func (r *round) couldFit(g *Group, n need, pods []*Pod) bool {
	q, sum := r.Queues[g.Queue], n.minimum(pods)
	for name, v := range sum {
		if limit, ok := q.Quota[name]; ok && v > limit || v > q.Capacity[name] && len(q.Capacity) > 0 && name != "pods" {
			return false
		}
	}
	return true
}

// endings lists the terminating pods whose room the group can have without an eviction. It leaves out the pods of other
// gangs that have started and lack pods, because the replacements of these pods need the room.
func (r *round) endings(g *Group) []evictionUnit {
	var units []evictionUnit
	for _, o := range r.running() {
		var all []evictionUnit
		for _, p := range o.Pods {
			if p.Node != "" && (p.Ending || r.evicted[p]) {
				all = append(all, evictionUnit{group: o, pods: []*Pod{p}, ends: true})
			}
		}
		if len(all) > 0 && (o == g || !r.started(o) || r.lacks(o).total == 0) {
			units = append(units, all...)
		}
	}
	return units
}

// victims lists the units that queue q may evict, in the order of eviction: from the queue of the lowest priority
// first, then from the group of the lowest priority, then from the group whose queue has the larger share, then from
// the youngest group. Within a group, the pods beyond the minimum come first, and then all other pods together.
func (r *round) victims(q *Queue) []evictionUnit {
	var groups []*Group
	running := r.running()
	if q.Priority <= r.lowest {
		return nil
	}
	for _, g := range running {
		o := r.Queues[g.Queue]
		// The round cannot undo a gang that it has just bound.
		fresh := r.decisions[g] != nil && len(r.decisions[g].Gangs) > 0
		if o != nil && o.Preemptible && o.Priority < q.Priority && !fresh && len(r.evictable(g)) > 0 {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(r.Queues[a.Queue].Priority, r.Queues[b.Queue].Priority), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(r.share(b), r.share(a)), b.Created.Compare(a.Created), cmp.Compare(b.Name, a.Name))
	})
	var units []evictionUnit
	for _, g := range groups {
		units = append(units, r.unitsOf(g)...)
	}
	return units
}

func (r *round) share(g *Group) float64 { return r.Queues[g.Queue].Share(r.used[g.Queue]) }

// evictable returns the bound pods of a group that are not terminating, the youngest first.
func (r *round) evictable(g *Group) []*Pod {
	var all []*Pod
	for _, p := range g.Pods {
		if p.Node != "" && r.stays(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *Pod) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Name, a.Name)) })
	return all
}

// unitsOf splits the evictable pods of a group into units.
func (r *round) unitsOf(g *Group) []evictionUnit {
	pods := r.evictable(g)
	have, total := map[string]int{}, 0
	for role, v := range g.Finished {
		have[role] += v
		total += v
	}
	for _, p := range pods {
		have[p.Role]++
		total++
	}
	var units []evictionUnit
	var rest []*Pod
	for _, p := range pods {
		if total > g.Min && have[p.Role] > g.Roles[p.Role] {
			units = append(units, evictionUnit{group: g, pods: []*Pod{p}})
			total--
			have[p.Role]--
			continue
		}
		rest = append(rest, p)
	}
	if len(rest) > 0 {
		units = append(units, evictionUnit{group: g, pods: rest, rest: true})
	}
	return units
}

// displace plans how a group takes the room of units, and reports whether the group fits then. It takes away the fewest
// units, in their order, without which the group fits, and then gives back the units that the group does not need. It
// reserves the room of the remaining units for the group. If no unit remains, it binds the group at once. If evicts is
// set, it evicts the pods of the remaining units that do not terminate anyway.
func (r *round) displace(g *Group, d *Decision, n need, pods []*Pod, units []evictionUnit, evicts bool) bool {
	mark := r.mark()
	r.simulating = true
	defer func() { r.simulating = false }()
	fits := func(k int) bool {
		r.rollback(mark)
		r.takeAway(units[:k])
		return r.gang(g, n, pods, nil) == nil
	}
	if !fits(len(units)) {
		r.rollback(mark)
		return false
	}
	k := r.fewest(g, n, pods, units, mark, fits)
	out := r.reprieve(g, n, pods, slices.Clone(units[:k]))
	if len(out) == 0 { // in another order of placement, the group fits without evictions
		r.commit(g, d)
		return true
	}
	res := &Reservation{Placements: r.planned(g), Order: r.order + 1, Evicts: evicts}
	for _, u := range out {
		res.Blockers = append(res.Blockers, u.pods...)
		if evicts && !u.ends {
			res.Victims = append(res.Victims, u.pods...)
		}
	}
	r.rollback(mark)
	r.keep(g, res)
	r.waitFor(d, res)
	return true
}

// fewest returns the smallest number of units, taken in order, without which the group fits, and leaves the group
// placed. The number may be too large if the group fits without some units and no longer fits without further ones. The
// group must fit if all units are taken away.
func (r *round) fewest(g *Group, n need, pods []*Pod, units []evictionUnit, mark int, fits func(int) bool) int {
	if !r.Shapeless && g.Topology == "" && uniform(g, pods) != "" {
		r.rollback(mark)
		if k, ok := r.grow(g, n.clone(), pods, units); ok {
			return k
		}
	}
	k := sort.Search(len(units), fits)
	if !fits(k) { // the search assumes that more room never hurts, which placement does not guarantee
		k = len(units)
		fits(k)
	}
	return k
}

// grow places the pods that fit and takes away one more unit, in order, until the group fits. It returns the number of
// units taken away. ok is false if the group does not fit even without all units. All pods of the group must be
// uniform. Placed pods need not move, because the number of such pods that a node can hold does not depend on other
// nodes.
func (r *round) grow(g *Group, left need, pods []*Pod, units []evictionUnit) (taken int, ok bool) {
	for ; ; taken++ {
		for len(pods) > 0 && left.total > 0 {
			if p := pods[0]; left.accepts(p.Role) {
				if r.place(g, p, nil) != nil {
					break
				}
				left.subtract(p.Role)
			}
			pods = pods[1:]
		}
		if left.total == 0 || taken == len(units) {
			return taken, left.total == 0
		}
		r.takeAway(units[taken : taken+1])
	}
}

// takeAway removes the pods of the units from their nodes.
func (r *round) takeAway(units []evictionUnit) {
	for _, u := range units {
		for _, p := range u.pods {
			r.take(u.group, p, p.Node)
		}
	}
}

// smallPlan is the largest product of units and pods for which giveBack may plan the whole gang again.
const smallPlan = 256

// reprieve gives back the units that the planned group does not need, and returns the others. It first tries all units
// on nodes that the plan does not use, together, and then each remaining unit, the most valuable first. Tied units are
// not given back. The group remains planned, possibly on other nodes.
func (r *round) reprieve(g *Group, n need, pods []*Pod, out []evictionUnit) []evictionUnit {
	used := map[string]bool{}
	for _, at := range r.planned(g) {
		used[at.Node] = true
	}
	var aside []evictionUnit
	for _, u := range out {
		if !tied(u, out) && !slices.ContainsFunc(u.pods, func(p *Pod) bool { return used[p.Node] }) {
			aside = append(aside, u)
		}
	}
	if len(aside) > 0 && r.giveBack(g, n, pods, aside, false) {
		out = slices.DeleteFunc(out, func(u evictionUnit) bool { return slices.ContainsFunc(aside, u.is) })
	}
	anew := len(out)*n.total <= smallPlan
	for i := len(out) - 1; i >= 0; i-- {
		u := out[i]
		if !tied(u, out) && r.giveBack(g, n, pods, []evictionUnit{u}, anew) {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// tied reports whether a pod beyond the minimum must be evicted because all other pods of its gang are evicted.
func tied(u evictionUnit, out []evictionUnit) bool {
	return !u.rest && slices.ContainsFunc(out, func(o evictionUnit) bool { return o.rest && o.group == u.group })
}

// is reports whether two units are the same.
func (u evictionUnit) is(o evictionUnit) bool { return u.pods[0] == o.pods[0] }

// giveBack puts units back on their nodes if the gang still fits, and reports whether it does. If anew is set, it
// places the whole gang again. Otherwise the gang's pods keep their planned nodes.
func (r *round) giveBack(g *Group, n need, pods []*Pod, units []evictionUnit, anew bool) bool {
	mark := r.mark()
	affected := map[string]bool{}
	for _, u := range units {
		for _, p := range u.pods {
			affected[p.Node] = true
		}
	}
	var again []Placement
	for _, at := range r.planned(g) {
		if anew || affected[at.Node] {
			r.take(g, at.Pod, at.Node)
			again = append(again, at)
		}
	}
	for _, u := range units {
		for _, p := range u.pods {
			r.put(u.group, p, p.Node)
		}
	}
	var ok bool
	if anew {
		ok = r.gang(g, n, pods, nil) == nil
	} else {
		ok = r.withinQuota(g, n.minimum(pods))
		for _, at := range again {
			ok = ok && r.place(g, at.Pod, func(node string) bool { return node == at.Node }) == nil
		}
	}
	if !ok {
		r.rollback(mark)
	}
	return ok
}

// withinQuota reports whether the queue of a planned group stays within its quota of the resources that the group
// requests.
func (r *round) withinQuota(g *Group, needs Resources) bool {
	used := r.used[g.Queue]
	for name, limit := range r.Queues[g.Queue].Quota {
		if needs[name] > 0 && used[name] > limit {
			return false
		}
	}
	return true
}
