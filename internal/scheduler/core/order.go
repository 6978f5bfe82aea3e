package core

import (
	"cmp"
	"slices"
)

// line is the groups of one class that are still to be tried, by queue, each in the order of its queue.
type line struct {
	queues map[string][]*Group
	names  []string
}

// within orders the groups of one queue: priority, then age.
func within(a, b *Group) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

func newLine(groups []*Group) *line {
	l := &line{queues: map[string][]*Group{}}
	for _, g := range groups {
		l.queues[g.Queue] = append(l.queues[g.Queue], g)
	}
	l.names = sortedKeys(l.queues)
	for _, name := range l.names {
		slices.SortFunc(l.queues[name], within)
	}
	return l
}

// next is the group whose turn it is, as things are used now; nil where none is left.
func (l *line) next(r *round) *Group {
	var best *Group
	var bestPriority int32
	var bestShare float64
	for _, name := range l.names {
		if len(l.queues[name]) == 0 {
			continue
		}
		g := l.queues[name][0]
		priority, share := int32(-1), 0.0
		if q := r.Queues[name]; q != nil {
			priority, share = q.Priority, q.Share(r.used[name])
		}
		if best == nil || cmp.Or(cmp.Compare(bestPriority, priority), cmp.Compare(share, bestShare), within(g, best)) < 0 {
			best, bestPriority, bestShare = g, priority, share
		}
	}
	return best
}

// drop takes the group whose turn it was out of the line.
func (l *line) drop(g *Group) { l.queues[g.Queue] = l.queues[g.Queue][1:] }
