package plugin

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// census counts the pods of a group.
type census struct {
	placed, bound, waits, finished int
	// latest is when the youngest of those that wait was created.
	latest time.Time
}

// touch derives what follows from a group's pods, after something about them has changed.
func (x *index) touch(g *group) {
	if g.spec == nil && len(g.core.Pods) > 0 {
		x.setQueue(g, queueLabel(x.pods[types.UID(g.core.Pods[0].UID)].pod))
	}
	n := x.census(g)
	started, whole := n.placed+n.finished > 0, n.bound+n.finished >= g.core.Min && x.rolesBound(g)
	g.core.Complete = started && (g.core.Complete || whole)
	if x.filled && (g.core.Complete || !started) {
		x.completed(g)
	}
	g.date(n)
	if n.waits > 0 || g.core.Reservation != nil {
		x.waiting[g] = true
		x.wake()
	} else {
		delete(x.waiting, g)
	}
	if len(g.core.Pods) == 0 && g.spec == nil && len(g.finished) == 0 {
		delete(x.groups, g.core.Name)
	}
}

// fill notes that all is known. What was whole before is told by what was last reported of it.
func (x *index) fill() {
	x.filled = true
	for _, g := range x.groups {
		if g.spec != nil {
			g.lastReported = groupReportOf(g.spec)
			g.core.Complete = g.lastReported.status == metav1.ConditionTrue
		}
		x.touch(g)
	}
}

// deadlines has those groups tried for which time has brought something about.
func (x *index) deadlines(now time.Time, c Config) {
	starved := false
	for g := range x.waiting {
		// Of those that starve there may be many: they are tried as those are for which something may have been freed.
		starved = starved || c.ReserveAfter > 0 && g.core.Reservation == nil && !g.core.Since.IsZero() && now.Sub(g.core.Since) >= c.ReserveAfter
		stranded := !g.core.Partial.IsZero() && now.Sub(g.core.Partial) >= c.Grace
		retried := !g.backoff.IsZero() && now.After(g.backoff)
		unreported := !g.reportAt.IsZero() && now.After(g.reportAt)
		evicting := g.core.Reservation != nil && g.core.Reservation.Preempting
		if stranded || retried || unreported || evicting {
			g.changed = true
			x.wake()
		}
	}
	if starved {
		x.freed++
		x.wake()
	}
}

// date notes since when a group waits, and since when it is bound in part only.
func (g *group) date(n census) {
	g.core.Since = time.Time{}
	if n.waits > 0 && n.placed+n.finished+n.waits >= g.core.Min {
		g.core.Since = n.latest
	}
	if n.placed == 0 || g.core.Complete || n.waits == 0 {
		g.core.Partial = time.Time{}
	} else if g.core.Partial.IsZero() {
		g.core.Partial = time.Now()
	}
}

// census counts a group's pods, and notes which members have finished.
func (x *index) census(g *group) (n census) {
	names := map[string]bool{}
	for _, p := range g.core.Pods {
		names[p.Name] = true
		switch {
		case p.Ending:
		case p.Node == "":
			n.waits++
			if p.Created.After(n.latest) {
				n.latest = p.Created
			}
		default:
			n.placed++
			if x.pods[types.UID(p.UID)].bound() {
				n.bound++
			}
		}
	}
	g.core.Finished = map[string]int{}
	for _, o := range g.finished {
		if !names[o.Name] { // a pod of the same name proves that this one is gone
			g.core.Finished[o.Labels[scheduling.LabelRole]]++
			n.finished++
		}
	}
	return n
}

// rolesBound tells whether each role has its minimum of pods that are bound or have finished.
func (x *index) rolesBound(g *group) bool {
	have := map[string]int{}
	for role, n := range g.core.Finished {
		have[role] += n
	}
	for _, p := range g.core.Pods {
		if !p.Ending && x.pods[types.UID(p.UID)].bound() {
			have[p.Role]++
		}
	}
	for role, n := range g.core.Roles {
		if have[role] < n {
			return false
		}
	}
	return true
}
