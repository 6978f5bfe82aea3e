package core

import (
	"cmp"
	"fmt"
	"slices"
)

// refusal is the reason why pods cannot be placed, with its message.
type refusal struct {
	reason  Reason
	message string
}

// nodesFor returns the filter of nodes for one pod. A nil nodesFor allows all nodes.
type nodesFor func(p *Pod) func(node string) bool

// fitLimit records the largest number of pods of one shape that fitted in this round, and why no more did. The limit
// remains valid as long as the free room only decreases.
type fitLimit struct {
	fitted int
	why    string
}

// gang places the pods that a group still needs for its minimum, all of them or none. It returns nil if it placed them.
func (r *round) gang(g *Group, n need, pods []*Pod, where nodesFor) *refusal {
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

// fill places pods one after the other until the minimum is met. It rolls all of them back if the minimum is not met.
func (r *round) fill(g *Group, n need, pods []*Pod, where nodesFor) *refusal {
	shape := ""
	if where == nil && !r.simulating && !r.Shapeless {
		shape = uniform(g, pods)
	}
	if m, ok := r.fitLimits[shape]; shape != "" && ok && n.total > m.fitted {
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
		r.fitLimits[shape] = fitLimit{fitted, last.message}
	}
	return n.refusal(fitted, last)
}

// fillFrom places pods until the need left, which it modifies, is met. It does not roll back. It returns the number of
// pods that are still lacking, and the refusal of the last pod that did not fit. If no pod was refused, last says "no
// nodes". If alike is set, all pods are alike, and fillFrom stops at the first pod that does not fit.
func (r *round) fillFrom(g *Group, left need, pods []*Pod, where nodesFor, alike bool) (lacking int, last *refusal) {
	last = &refusal{NoRoom, "no nodes"}
	for _, p := range pods {
		if left.total == 0 {
			break
		}
		if !left.accepts(p.Role) {
			continue
		}
		var among func(string) bool
		if where != nil {
			among = where(p)
		}
		no := r.place(g, p, among)
		if no == nil {
			left.subtract(p.Role)
			continue
		}
		if last = no; alike {
			break
		}
	}
	return left.total, last
}

// refusal returns the refusal of a whole gang: the reason of last, and its message after the number of pods that
// fitted. If the need is one pod, it returns last.
func (n need) refusal(fitted int, last *refusal) *refusal {
	if n.total == 1 {
		return last
	}
	return &refusal{last.reason, fmt.Sprintf("%d of the %d pods that must start together fit; the next one does not: %s", fitted, n.total, last.message)}
}

// uniform returns a key of the shape that all pods share. The key includes the queue, because queues may use different
// nodes. The key is empty if the pods differ or if their shape is unknown. There must be at least one pod.
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

// domainsOf lists the topology domains in which the group already has pods. The domain of a node without one is the
// empty string.
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

// inDomain returns a filter for the nodes of one topology domain.
func (r *round) inDomain(domain string) func(string) bool {
	return func(node string) bool { return r.Domain(node) == domain }
}

// inOneDomain places a group in the first topology domain with enough room. If the group already has pods, only their
// domains count.
func (r *round) inOneDomain(g *Group, n need, pods []*Pod) *refusal {
	domains := r.Domains
	if have := r.domainsOf(g); len(have) > 0 {
		domains = have
	}
	no := &refusal{NoRoom, "no node has a topology domain"}
	for _, d := range domains {
		in := r.inDomain(d)
		if no = r.fill(g, n, pods, func(*Pod) func(string) bool { return in }); no == nil {
			return nil
		}
		no.message = fmt.Sprintf("no topology domain takes all of the group; in %s: %s", d, no.message)
	}
	return no
}

// inFewDomains places a group in one topology domain if a domain has enough room. If the group already has pods, this
// must be a domain of these pods. Otherwise it fills the domains in turn: first those where the group already has pods,
// then those where the most pods fit, and last the nodes without a domain.
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
		fits := r.count(g, n, pods, r.inDomain(d))
		if fits == n.total && (len(have) == 0 || slices.Contains(have, d)) {
			in := r.inDomain(d)
			if r.fill(g, n, pods, func(*Pod) func(string) bool { return in }) == nil {
				return nil
			}
		}
		if slices.Contains(have, d) {
			fits += n.total // domains that already have pods of the group come first
		}
		rooms = append(rooms, room{d, fits})
	}
	slices.SortStableFunc(rooms, func(a, b room) int { return cmp.Compare(b.fits, a.fits) })
	return r.fillInOrder(g, n, pods, func() []func(string) bool {
		order := make([]func(string) bool, 0, len(rooms)+1)
		for _, o := range rooms {
			order = append(order, r.inDomain(o.domain))
		}
		return append(order, r.inDomain(""))
	}())
}

// count returns how many of the needed pods fit on the nodes that among allows. It leaves none of them placed.
func (r *round) count(g *Group, n need, pods []*Pod, among func(string) bool) int {
	mark, left := r.mark(), n.clone()
	for _, p := range pods {
		if left.total > 0 && left.accepts(p.Role) && r.place(g, p, among) == nil {
			left.subtract(p.Role)
		}
	}
	r.rollback(mark)
	return n.total - left.total
}

// fillInOrder places the needed pods, all of them or none, each in the first part in which it fits. Each part is a
// filter of nodes.
func (r *round) fillInOrder(g *Group, n need, pods []*Pod, parts []func(string) bool) *refusal {
	mark, left := r.mark(), n.clone()
	no := &refusal{NoRoom, "no nodes"}
	for _, p := range pods {
		if left.total == 0 || !left.accepts(p.Role) {
			continue
		}
		for _, part := range parts {
			if no = r.place(g, p, part); no == nil {
				left.subtract(p.Role)
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

// whereMore returns the filter of nodes for a pod beyond the minimum; nil allows all nodes. If the policy of the group
// is Required, only the domains in which it already has pods are allowed.
func (r *round) whereMore(g *Group) func(string) bool {
	have := r.domainsOf(g)
	if g.Topology != Required || len(have) == 0 {
		return nil
	}
	return func(node string) bool { return slices.Contains(have, r.Domain(node)) }
}
