package core

import (
	"cmp"
	"slices"
)

// pendingGroups holds the groups of one class that the round has not tried yet, by queue. The groups of a queue are in
// the order of compareGroups.
type pendingGroups struct {
	queues map[string][]*Group
	names  []string
}

// compareGroups orders groups by higher priority, then by age, the oldest first, then by name.
func compareGroups(a, b *Group) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// newPendingGroups sorts the groups into their queues.
func newPendingGroups(groups []*Group) *pendingGroups {
	p := &pendingGroups{queues: map[string][]*Group{}}
	for _, g := range groups {
		p.queues[g.Queue] = append(p.queues[g.Queue], g)
	}
	p.names = sortedKeys(p.queues)
	for _, name := range p.names {
		slices.SortFunc(p.queues[name], compareGroups)
	}
	return p
}

// next returns the group to try next; nil if none is left. It is the first group of the queue with the highest priority
// or, among queues of equal priority, of the queue with the smallest dominant share of its current use. Between queues
// that are equal in both, compareGroups decides by their first groups.
func (p *pendingGroups) next(r *round) *Group {
	var best *Group
	var bestPriority int32
	var bestShare float64
	for _, name := range p.names {
		if len(p.queues[name]) == 0 {
			continue
		}
		g := p.queues[name][0]
		priority, share := int32(-1), 0.0
		if q := r.Queues[name]; q != nil {
			priority, share = q.Priority, q.Share(r.used[name])
		}
		if best == nil || cmp.Or(cmp.Compare(bestPriority, priority), cmp.Compare(share, bestShare), compareGroups(g, best)) < 0 {
			best, bestPriority, bestShare = g, priority, share
		}
	}
	return best
}

// pop removes the group that next returned.
func (p *pendingGroups) pop(g *Group) { p.queues[g.Queue] = p.queues[g.Queue][1:] }
