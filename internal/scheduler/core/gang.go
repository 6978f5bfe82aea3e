package core

import (
	"cmp"
	"fmt"
	"slices"
)

// refusal is why something cannot be placed.
type refusal struct {
	reason  Reason
	message string
}

// pick narrows the nodes for one pod; nil: all nodes.
type pick func(p *Pod) func(node string) bool

// misfit is how many pods of a shape fitted at most, as long as room has only become less since.
type misfit struct {
	fitted int
	why    string
}

// gang places what a group lacks of its minimum, all of it or nothing.
func (r *round) gang(g *Group, n need, pods []*Pod, where pick) *refusal {
	q, sum := r.Queues[g.Queue], n.minimum(pods)
	if len(q.exceeds(r.used[g.Queue], sum)) > 0 {
		return &refusal{QuotaExceeded, q.quotaMessage(r.used[g.Queue], sum, amount)}
	}
	switch {
	case where != nil || g.Topology == "":
		return r.fill(g, n, pods, where)
	case g.Topology == Required:
		return r.inOneDomain(g, n, pods)
	default:
		return r.inFewDomains(g, n, pods)
	}
}

// fill places pods one after the other until the minimum is met, and takes all of them back if it is not.
func (r *round) fill(g *Group, n need, pods []*Pod, where pick) *refusal {
	shape := ""
	if where == nil && !r.simulating && !r.Shapeless {
		shape = uniform(g, pods)
	}
	if m, ok := r.misfits[shape]; shape != "" && ok && n.total > m.fitted {
		return n.refusal(m.fitted, &refusal{NoRoom, m.why})
	}
	mark := r.mark()
	lacking, last := r.fillFrom(g, n.clone(), pods, where, shape != "")
	if lacking == 0 {
		return nil
	}
	r.rollback(mark)
	fitted := n.total - lacking
	if shape != "" && last.reason == NoRoom {
		r.misfits[shape] = misfit{fitted, last.message}
	}
	return n.refusal(fitted, last)
}

// fillFrom places pods until nothing is lacking, and returns how many are and why. If the pods are all alike, the first that
// does not fit ends it.
func (r *round) fillFrom(g *Group, left need, pods []*Pod, where pick, alike bool) (lacking int, last *refusal) {
	last = &refusal{NoRoom, "no nodes"}
	for _, p := range pods {
		if left.total == 0 {
			break
		}
		if !left.takes(p.Role) {
			continue
		}
		var among func(string) bool
		if where != nil {
			among = where(p)
		}
		no := r.place(g, p, among)
		if no == nil {
			left.took(p.Role)
			continue
		}
		if last = no; alike {
			break
		}
	}
	return left.total, last
}

// refusal tells how many fitted before one did not.
func (n need) refusal(fitted int, last *refusal) *refusal {
	if n.total == 1 {
		return last
	}
	return &refusal{last.reason, fmt.Sprintf("%d of the %d pods that must start together fit; the next one does not: %s", fitted, n.total, last.message)}
}

// uniform is the shape of all pods, within the nodes of their queue; empty where they differ or it cannot be told.
func uniform(g *Group, pods []*Pod) string {
	shape := pods[0].Shape
	for _, p := range pods {
		if p.Shape != shape {
			return ""
		}
	}
	if shape == "" {
		return ""
	}
	return g.Queue + "\x00" + shape
}

// domainsOf lists the domains in which a group has pods already.
func (r *round) domainsOf(g *Group) []string {
	var all []string
	for _, p := range g.Pods {
		if r.stays(p) {
			if d := r.Domain(r.node(p)); !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	return all
}

func (r *round) within(domain string) func(string) bool {
	return func(node string) bool { return r.Domain(node) == domain }
}

// inOneDomain places a group in one domain: the one where it is already, or else the first that takes it.
func (r *round) inOneDomain(g *Group, n need, pods []*Pod) *refusal {
	domains := r.Domains
	if have := r.domainsOf(g); len(have) > 0 {
		domains = have
	}
	no := &refusal{NoRoom, "no node has a topology domain"}
	for _, d := range domains {
		in := r.within(d)
		if no = r.fill(g, n, pods, func(*Pod) func(string) bool { return in }); no == nil {
			return nil
		}
		no.message = fmt.Sprintf("no topology domain takes all of the group; in %s: %s", d, no.message)
	}
	return no
}

// inFewDomains places a group in one domain if one takes all of it, and else in those that take most, one after the other.
func (r *round) inFewDomains(g *Group, n need, pods []*Pod) *refusal {
	type room struct {
		domain string
		fits   int
	}
	var rooms []room
	have := r.domainsOf(g)
	for _, d := range append(slices.Clone(have), r.Domains...) {
		if slices.ContainsFunc(rooms, func(o room) bool { return o.domain == d }) {
			continue
		}
		fits := r.count(g, n, pods, r.within(d))
		if fits == n.total && (len(have) == 0 || slices.Contains(have, d)) {
			in := r.within(d)
			if r.fill(g, n, pods, func(*Pod) func(string) bool { return in }) == nil {
				return nil
			}
		}
		if slices.Contains(have, d) {
			fits += n.total // where the group is already comes first
		}
		rooms = append(rooms, room{d, fits})
	}
	slices.SortStableFunc(rooms, func(a, b room) int { return cmp.Compare(b.fits, a.fits) })
	return r.fillInOrder(g, n, pods, func() []func(string) bool {
		order := make([]func(string) bool, 0, len(rooms)+1)
		for _, o := range rooms {
			order = append(order, r.within(o.domain))
		}
		return append(order, r.within(""))
	}())
}

// count is how many of the pods fit among some nodes.
func (r *round) count(g *Group, n need, pods []*Pod, among func(string) bool) int {
	mark, left := r.mark(), n.clone()
	for _, p := range pods {
		if left.total > 0 && left.takes(p.Role) && r.place(g, p, among) == nil {
			left.took(p.Role)
		}
	}
	r.rollback(mark)
	return n.total - left.total
}

// fillInOrder gives each pod the first part of the nodes that takes it.
func (r *round) fillInOrder(g *Group, n need, pods []*Pod, parts []func(string) bool) *refusal {
	mark, left := r.mark(), n.clone()
	no := &refusal{NoRoom, "no nodes"}
	for _, p := range pods {
		if left.total == 0 || !left.takes(p.Role) {
			continue
		}
		for _, part := range parts {
			if no = r.place(g, p, part); no == nil {
				left.took(p.Role)
				break
			}
		}
	}
	if left.total == 0 {
		return nil
	}
	r.rollback(mark)
	if no == nil {
		no = &refusal{NoRoom, "no nodes"}
	}
	return n.refusal(n.total-left.total, no)
}

// whereMore are the nodes for a pod beyond the minimum.
func (r *round) whereMore(g *Group) func(string) bool {
	have := r.domainsOf(g)
	if g.Topology != Required || len(have) == 0 {
		return nil
	}
	return func(node string) bool { return slices.Contains(have, r.Domain(node)) }
}
