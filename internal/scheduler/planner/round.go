package planner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/placement"
)

const (
	// podsPerRound is the approximate number of placed pods after which a round ends.
	podsPerRound = 128
	// fullShare is the ratio of the pause after a full round, see choose, to the duration of the round.
	fullShare = 19
	// maxPause is the upper bound of that pause.
	maxPause = 5 * time.Second
	// syncPoll is the interval at which the planner checks whether all caches have synced.
	syncPoll = 20 * time.Millisecond
	// cachePoll is the interval at which a round checks whether the scheduler's cache has removed pods that are gone.
	cachePoll = 2 * time.Millisecond
)

// round decides about the waiting groups, and queues the pods that get a node for their scheduling cycles.
func (pl *Planner) round(ctx context.Context, now time.Time) {
	if !pl.sources.Synced() { // without the running pods, the quotas and the room would be wrong
		pl.nextFull, pl.due = now.Add(syncPoll), true
		return
	}
	x := pl.index
	if !x.filled {
		x.fill(now)
	}
	if pl.awaitsCache(now) {
		x.wakeAt(now.Add(cachePoll))
		return
	}
	if x.nodesChanged {
		list, err := pl.sources.Nodes.List(labels.Everything())
		if err != nil {
			return
		}
		x.capacities(list, pl.config.TopologyLabel)
	}
	pl.releaseReservations(ctx)
	groups, skipped, full := pl.choose(now)
	if len(groups) == 0 {
		return
	}
	defer func() { roundSeconds.WithLabelValues().Observe(pl.clock.Since(now).Seconds()) }()
	if err := pl.scheduler.Nodes.Begin(pl.waitingPod); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot take a snapshot of the nodes; no group is scheduled in this round")
		return
	}
	c := pl.input(ctx, now, groups)
	c.Skip = func(g *core.Group) bool { return skipped[g] }
	result := core.Round(c)
	if pl.scheduler.Nodes.Err() != nil {
		pl.discard(ctx, result, now)
		return
	}
	missed := false
	for _, d := range result.Decisions {
		missed = missed || len(d.Gangs) == 0
		pl.carryOut(d, now)
	}
	switch {
	case result.More:
		x.wake()
	case full && missed:
		end := pl.clock.Now()
		pl.nextFull = end.Add(min(fullShare*end.Sub(now), maxPause))
	}
}

// awaitsCache reports whether the scheduler's cache still has a pod in departed that the round must wait for. It
// forgets the other pods that it examines. Another event handler updates the cache, and may run later than the
// planner's.
func (pl *Planner) awaitsCache(now time.Time) bool {
	for pod, until := range pl.departed {
		if pl.scheduler.Nodes.HasPod(pod) && now.Before(until) {
			return true
		}
		delete(pl.departed, pod)
	}
	return false
}

// choose returns the groups of a round, sorted by name: the groups to try, and the groups that only keep their
// reservation, for which skipped is true. full is true for a round that also tries groups that did not fit before and
// have not changed; nextFull limits how often that happens. choose determines anew when the next round is due.
func (pl *Planner) choose(now time.Time) (groups []*core.Group, skipped map[*core.Group]bool, full bool) {
	x := pl.index
	skipped, pl.due, x.alarm = map[*core.Group]bool{}, false, time.Time{}
	for g := range x.waiting {
		if !g.single && g.spec == nil {
			continue
		}
		try := pl.tries(g, now)
		if !try && g.Reservation == nil {
			continue
		}
		full = full || try && !g.changed
		groups = append(groups, &g.Group)
		skipped[&g.Group] = !try
	}
	slices.SortFunc(groups, byName)
	return groups, skipped, full
}

// tries reports whether to try a group now. If the group only has to wait for some time, tries requests a round after
// that time.
func (pl *Planner) tries(g *group, now time.Time) bool {
	x := pl.index
	switch {
	case now.Before(g.backoff):
		x.wakeAt(g.backoff)
		return false
	case !g.changed && g.tried == x.freed:
		return false
	case !g.changed && now.Before(pl.nextFull):
		pl.due = true
		return false
	}
	return pl.queued(g) && x.admit(g, pl.sources.Rights, now)
}

// queued reports whether the scheduler's queue has received all waiting pods of a group, so that they can be handed
// out.
func (pl *Planner) queued(g *group) bool {
	return !slices.ContainsFunc(g.Pods, func(p *core.Pod) bool {
		return p.Node == "" && !p.Ending && !pl.scheduler.Queue.Has(types.UID(p.UID))
	})
}

// waitingPod returns a pod with the data that its placement needs; nil if there is no such pod.
func (pl *Planner) waitingPod(uid types.UID) *placement.Pod {
	m := pl.index.pods[uid]
	if m == nil {
		return nil
	}
	return &placement.Pod{Object: m.object, Pool: pl.index.poolOf(m.group.queueName()), Group: m.group.uid()}
}

// byName compares groups by name, which is unique, so that a round does not depend on the order of events.
func byName(a, b *core.Group) int { return cmp.Compare(a.Name, b.Name) }

// input returns the cluster as core.Round reads it.
func (pl *Planner) input(ctx context.Context, now time.Time, groups []*core.Group) *core.Cluster {
	x := pl.index
	c := &core.Cluster{Queues: make(map[string]*core.Queue, len(x.queues)), Groups: groups, Nodes: pl.scheduler.Nodes.Within(ctx), Now: now,
		ReserveAfter: pl.config.ReserveAfter, Grace: pl.config.Grace, MaxPods: podsPerRound, Used: x.used}
	for name, q := range x.queues {
		c.Queues[name] = &q.Queue
	}
	if c.Uncounted = pl.scheduler.Nodes.Uncounted(); c.Uncounted != nil {
		c.Sites = func(g *core.Group, p *core.Pod) *core.Sites {
			m := x.pods[types.UID(p.UID)]
			return x.sites.Of(x.poolOf(g.Queue), m.object, m.constraints)
		}
	}
	c.Running = func() []*core.Group {
		all := make([]*core.Group, 0, len(x.groups))
		for _, g := range x.groups {
			if len(g.Pods) > 0 {
				all = append(all, &g.Group)
			}
		}
		slices.SortFunc(all, byName)
		return all
	}
	c.Shapeless = pl.scheduler.Nodes.PodsRefuseOthers()
	if label := pl.config.TopologyLabel; label != "" {
		of, domains := pl.scheduler.Nodes.Domains(label)
		c.Domain, c.Domains = func(node string) string { return of[node] }, domains
	}
	return c
}

// releaseReservations frees the room of all reservations, because the round places them again. It drops a reservation
// if its PodGroup is gone, if one of its pods no longer waits, or if one of its nodes is gone.
func (pl *Planner) releaseReservations(ctx context.Context) {
	for g := range pl.index.waiting {
		h := g.Reservation
		if h == nil {
			continue
		}
		valid := g.single || g.spec != nil
		for _, at := range h.Placements {
			pl.scheduler.Nodes.Forget(ctx, types.UID(at.Pod.UID))
			valid = valid && !at.Pod.Gone && !at.Pod.Ending && at.Pod.Node == "" && pl.scheduler.Nodes.HasNode(at.Node)
		}
		if !valid {
			g.Reservation = nil
			g.changed = true
		}
	}
}

// discard undoes a round in which Nodes failed: it frees the room of all assumed pods and drops the reservations of the
// groups in result. The next full round comes after deadlineInterval.
func (pl *Planner) discard(ctx context.Context, result core.Result, now time.Time) {
	klog.FromContext(ctx).Error(pl.scheduler.Nodes.Err(), "Cannot carry out a scheduling round, because the scheduler's cache refused a change; trying again")
	pl.scheduler.Nodes.Reset(ctx)
	for _, d := range result.Decisions {
		d.Group.Reservation = nil
	}
	pl.nextFull = now.Add(deadlineInterval)
	pl.due = true
}

// carryOut executes a decision.
func (pl *Planner) carryOut(d *core.Decision, now time.Time) {
	x := pl.index
	g := x.groups[d.Group.Name]
	g.changed, g.tried, g.backoff, g.reportAt = false, x.freed, time.Time{}, time.Time{}
	g.Reservation = d.Reservation
	for _, gang := range d.Gangs {
		a := &attempt{group: g, size: len(gang), arrived: map[types.UID]bool{}}
		for _, at := range gang {
			m := x.pods[types.UID(at.Pod.UID)]
			x.setNode(m, at.Node)
			if pl.writer.DropPod(m.object.UID) { // the pod no longer waits
				m.lastReported = podReport{}
			}
			m.attempt = a
			pl.ready = append(pl.ready, m)
		}
	}
	pl.evict(d)
	pl.report(g, d, now)
	x.touch(g, now)
}
