package planner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/podspec"
)

// podCounts counts the pods of a group. placed counts the pods with a planned or bound node, and bound those of them
// that are bound. Pods that are being deleted are left out.
type podCounts struct {
	placed, bound, waits, finished int
	// latest is the creation time of the youngest waiting pod.
	latest time.Time
}

// touch updates all state that is derived from the pods of a group, and requests a round if the group waits or has a
// reservation. Call it after each change of the pods. It removes a group of which nothing is left.
func (x *index) touch(g *group, now time.Time) {
	if g.spec == nil && len(g.Pods) > 0 {
		x.setQueue(g, podspec.Queue(x.pods[types.UID(g.Pods[0].UID)].object))
	}
	n := x.countPods(g)
	g.started = n.placed+n.finished > 0
	g.Complete = g.started && (g.Complete || n.bound+n.finished >= g.Min && x.rolesBound(g))
	x.touched = append(x.touched, g)
	g.setTimes(n, now)
	if n.waits > 0 || g.Reservation != nil {
		x.waiting[g] = true
		x.wake()
	} else {
		delete(x.waiting, g)
	}
	if len(g.Pods) == 0 && g.spec == nil && len(g.finished) == 0 {
		delete(x.groups, g.Name)
	}
}

// fill marks the index as complete. It determines from the last reported condition of each group whether the minimum of
// the group was bound before.
func (x *index) fill(now time.Time) {
	x.filled = true
	for _, g := range x.groups {
		if g.spec != nil {
			g.lastReported = groupReportOf(g.spec)
			g.Complete = g.lastReported.status == metav1.ConditionTrue
		}
		x.touch(g, now)
	}
}

// deadlines marks the groups that the next round must try because of the time that has passed.
func (x *index) deadlines(now time.Time, c Config) {
	starved := false
	for g := range x.waiting {
		// Many groups may starve, so they are not marked as changed. Instead, a full round tries them.
		starved = starved || c.ReserveAfter > 0 && g.Reservation == nil && !g.Since.IsZero() && now.Sub(g.Since) >= c.ReserveAfter
		stranded := !g.Partial.IsZero() && now.Sub(g.Partial) >= c.Grace
		retried := !g.backoff.IsZero() && now.After(g.backoff)
		unreported := !g.reportAt.IsZero() && now.After(g.reportAt)
		evicting := g.Reservation != nil && g.Reservation.Evicts
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

// setTimes sets the times since which a group waits and since which it is partly bound.
func (g *group) setTimes(n podCounts, now time.Time) {
	g.Since = time.Time{}
	if n.waits > 0 && n.placed+n.finished+n.waits >= g.Min {
		g.Since = n.latest
	}
	if n.placed == 0 || g.Complete || n.waits == 0 {
		g.Partial = time.Time{}
	} else if g.Partial.IsZero() {
		g.Partial = now
	}
}

// countPods counts the pods of a group, and updates the finished members that core sees.
func (x *index) countPods(g *group) (n podCounts) {
	names := map[string]bool{}
	for _, p := range g.Pods {
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
	g.Finished = map[string]int{}
	for _, o := range g.finished {
		if !names[o.Name] { // a new pod of the same name proves that the finished one was deleted
			g.Finished[o.Labels[scheduling.LabelRole]]++
			n.finished++
		}
	}
	return n
}

// rolesBound reports whether each role has its minimum of pods that are bound or have finished.
func (x *index) rolesBound(g *group) bool {
	have := map[string]int{}
	for role, n := range g.Finished {
		have[role] += n
	}
	for _, p := range g.Pods {
		if !p.Ending && x.pods[types.UID(p.UID)].bound() {
			have[p.Role]++
		}
	}
	for role, n := range g.Roles {
		if have[role] < n {
			return false
		}
	}
	return true
}
