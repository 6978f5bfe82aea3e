package core

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// unit is what is evicted at once: a pod that its group can spare, or a gang as a whole.
type unit struct {
	group *Group
	pods  []*Pod
	// rest: with this unit the group falls below its minimum.
	rest bool
}

// preempt plans evictions from lower queues for a group that does not fit, if it would fit then.
func (r *round) preempt(g *Group, d *Decision, n need, pods []*Pod, no *refusal) bool {
	if no.reason != NoRoom || !r.couldFit(g, n, pods) {
		return false
	}
	victims := r.victims(r.Queues[g.Queue])
	if len(victims) == 0 {
		return false
	}
	return r.unlessHopeless("evicting", g, n, pods, func() bool {
		return r.displace(g, d, n, pods, append(r.endings(g), victims...), true)
	})
}

// unlessHopeless tries something for a group, unless it was of no use to one like it that needed no more.
func (r *round) unlessHopeless(how string, g *Group, n need, pods []*Pod, try func() bool) bool {
	kin := r.kin(g, n, pods)
	if kin == "" {
		return try()
	}
	kin = how + "\x00" + kin
	if least, ok := r.hopeless[kin]; ok && n.total >= least {
		return false
	}
	if try() {
		return true
	}
	r.hopeless[kin] = n.total
	return false
}

// kin is the same for groups of which one fits wherever the other one does, if it lacks no more; empty where that cannot be told.
func (r *round) kin(g *Group, n need, pods []*Pod) string {
	mine := func(p *Pod) bool { return p.Node != "" } // what it has itself, others may hope for
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

// replace keeps the room of pods that end for a gang that runs and lacks pods: these may be what it lacks.
func (r *round) replace(g *Group, d *Decision, n need, pods []*Pod) bool {
	if !r.started(g) || !r.couldFit(g, n, pods) {
		return false
	}
	units := r.endings(g)
	return len(units) > 0 && r.displace(g, d, n, pods, units, false)
}

// reserve keeps room for a group that waited for too long, which it gets when those who use it end.
func (r *round) reserve(g *Group, d *Decision, n need, pods []*Pod) bool {
	if !r.starves(g) || !r.couldFit(g, n, pods) {
		return false
	}
	units := r.endings(g)
	for _, o := range r.running() {
		for _, p := range o.Pods {
			if o != g && p.Node != "" && !p.Ending && !r.leaving[p] {
				units = append(units, unit{group: o, pods: []*Pod{p}})
			}
		}
	}
	return r.unlessHopeless("waiting", g, n, pods, func() bool { return r.displace(g, d, n, pods, units, false) })
}

// couldFit tells whether a group's minimum is within the whole quota and the capacity of all nodes of its queue.
func (r *round) couldFit(g *Group, n need, pods []*Pod) bool {
	q, sum := r.Queues[g.Queue], n.minimum(pods)
	for name, v := range sum {
		if limit, ok := q.Quota[name]; ok && v > limit || v > q.Capacity[name] && len(q.Capacity) > 0 && name != "pods" {
			return false
		}
	}
	return true
}

// endings are pods that end anyway: group g has their room without evicting anybody. That of pods whose gang goes on without them
// and lacks them is for those that come in their place.
func (r *round) endings(g *Group) []unit {
	var units []unit
	for _, o := range r.running() {
		var all []unit
		for _, p := range o.Pods {
			if p.Node != "" && (p.Ending || r.leaving[p]) {
				all = append(all, unit{group: o, pods: []*Pod{p}})
			}
		}
		if len(all) > 0 && (o == g || !r.started(o) || r.lacks(o).total == 0) {
			units = append(units, all...)
		}
	}
	return units
}

// victims lists what queue q may evict, in the order in which it does: the lowest queue first, then the lowest group, then
// that of the queue with the larger share, then the youngest. Of a gang, first what is beyond its minimum, then all the rest.
func (r *round) victims(q *Queue) []unit {
	var groups []*Group
	running := r.running()
	if q.Priority <= r.lowest {
		return nil
	}
	for _, g := range running {
		o := r.Queues[g.Queue]
		fresh := r.decisions[g] != nil && len(r.decisions[g].Gangs) > 0 // what of it is bound now cannot be taken back
		if o != nil && o.Preemptible && o.Priority < q.Priority && !fresh && len(r.evictable(g)) > 0 {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(r.Queues[a.Queue].Priority, r.Queues[b.Queue].Priority), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(r.share(b), r.share(a)), b.Created.Compare(a.Created), cmp.Compare(b.Name, a.Name))
	})
	var units []unit
	for _, g := range groups {
		units = append(units, r.unitsOf(g)...)
	}
	return units
}

func (r *round) share(g *Group) float64 { return r.Queues[g.Queue].Share(r.used[g.Queue]) }

// evictable are the pods of a group that run and are not on their way out, the youngest first.
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

func (r *round) unitsOf(g *Group) []unit {
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
	var units []unit
	var rest []*Pod
	for _, p := range pods {
		if total > g.Min && have[p.Role] > g.Roles[p.Role] {
			units = append(units, unit{group: g, pods: []*Pod{p}})
			total--
			have[p.Role]--
			continue
		}
		rest = append(rest, p)
	}
	if len(rest) > 0 {
		units = append(units, unit{group: g, pods: rest, rest: true})
	}
	return units
}

// displace finds the fewest of the units, taken in order, without which a group fits, and keeps the room for it.
func (r *round) displace(g *Group, d *Decision, n need, pods []*Pod, units []unit, preempting bool) bool {
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
	out := r.spare(g, n, pods, slices.Clone(units[:k]))
	if len(out) == 0 { // placed in another order it fits
		r.commit(g, d)
		return true
	}
	res := &Reservation{Placements: r.planned(g), Order: r.order + 1, Preempting: preempting}
	for _, u := range out {
		res.Blockers = append(res.Blockers, u.pods...)
	}
	r.rollback(mark)
	r.keep(g, res)
	r.waitFor(d, res)
	return true
}

// fewest is how many of the units are to go until a group fits, which is placed then. With all of them gone it does.
func (r *round) fewest(g *Group, n need, pods []*Pod, units []unit, mark int, fits func(int) bool) int {
	if !r.Shapeless && g.Topology == "" && uniform(g, pods) != "" {
		r.rollback(mark)
		if k, ok := r.grow(g, n.clone(), pods, units); ok {
			return k
		}
	}
	k := sort.Search(len(units), fits)
	if !fits(k) { // more room does not always make more fit
		k = len(units)
		fits(k)
	}
	return k
}

// grow takes unit after unit away and places what fits of a group, whose pods are alike, in between: what has been placed does
// not have to move, for how many fit on a node does not depend on what is on others.
func (r *round) grow(g *Group, left need, pods []*Pod, units []unit) (taken int, ok bool) {
	for ; ; taken++ {
		for len(pods) > 0 && left.total > 0 {
			if p := pods[0]; left.takes(p.Role) {
				if r.place(g, p, nil) != nil {
					break
				}
				left.took(p.Role)
			}
			pods = pods[1:]
		}
		if left.total == 0 || taken == len(units) {
			return taken, left.total == 0
		}
		r.takeAway(units[taken : taken+1])
	}
}

func (r *round) takeAway(units []unit) {
	for _, u := range units {
		for _, p := range u.pods {
			r.take(u.group, p, p.Node)
		}
	}
}

// smallPlan is up to how many placements finding out whether a unit can be spared may plan the whole gang anew.
const smallPlan = 256

// spare gives back, of what was taken away for a group, all that it does not need, the most valuable first.
func (r *round) spare(g *Group, n need, pods []*Pod, out []unit) []unit {
	used := map[string]bool{}
	for _, at := range r.planned(g) {
		used[at.Node] = true
	}
	var aside []unit
	for _, u := range out {
		if !tied(u, out) && !slices.ContainsFunc(u.pods, func(p *Pod) bool { return used[p.Node] }) {
			aside = append(aside, u)
		}
	}
	if len(aside) > 0 && r.giveBack(g, n, pods, aside, false) {
		out = slices.DeleteFunc(out, func(u unit) bool { return slices.ContainsFunc(aside, u.is) })
	}
	anew := len(out)*n.total <= smallPlan
	for i := len(out) - 1; i >= 0; i-- {
		u := out[i]
		if !tied(u, out) && r.giveBack(g, n, pods, []unit{u}, anew) {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// tied tells whether a pod that its group can spare must go all the same, for the rest of the group does.
func tied(u unit, out []unit) bool {
	return !u.rest && slices.ContainsFunc(out, func(o unit) bool { return o.rest && o.group == u.group })
}

func (u unit) is(o unit) bool { return u.pods[0] == o.pods[0] }

// giveBack puts units back where they were, if the gang still fits: placed anew, or with its pods on the nodes that they
// have in the plan.
func (r *round) giveBack(g *Group, n need, pods []*Pod, units []unit, anew bool) bool {
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

// withinQuota tells whether the queue of a group that is planned keeps to its quota of what the group needs.
func (r *round) withinQuota(g *Group, needs Resources) bool {
	used := r.used[g.Queue]
	for name, limit := range r.Queues[g.Queue].Quota {
		if needs[name] > 0 && used[name] > limit {
			return false
		}
	}
	return true
}
