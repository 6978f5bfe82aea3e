package plugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/scheduler/core"
)

const (
	// batch is about how many pods one round plans.
	batch = 128
	// fullShare is the ratio of the pause after a full round to the duration of the round.
	fullShare = 19
	// longestPause is the upper bound of that pause.
	longestPause = 5 * time.Second
	// syncPoll is the interval at which the planner checks whether all caches have synced.
	syncPoll = 20 * time.Millisecond
	// cachePoll is the interval at which a round checks whether the scheduler's cache has removed the pods that have gone.
	cachePoll = 2 * time.Millisecond
)

// round decides about the waiting groups, and makes the pods that get a node ready for their scheduling cycles.
func (pl *planner) round(ctx context.Context, now time.Time) {
	if !pl.synced() { // without the running pods, the quotas and the room would be wrong
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
		list, err := pl.nodeLister.List(everything)
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
	if err := pl.nodes.begin(); err != nil {
		klog.ErrorS(err, "Taking a snapshot of the nodes")
		return
	}
	c := pl.cluster(ctx, now, groups)
	c.Skip = func(g *core.Group) bool { return skipped[g] }
	result := core.Round(c)
	if pl.nodes.err != nil {
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
		pl.nextFull = end.Add(min(fullShare*end.Sub(now), longestPause))
	}
}

// awaitsCache reports whether the scheduler's cache still has a pod that has gone. The cache learns of it from another
// event handler, which may run later than the planner's.
func (pl *planner) awaitsCache(now time.Time) bool {
	for pod, until := range pl.leaving {
		if _, err := pl.nodes.cache.GetPod(pod); err == nil && now.Before(until) {
			return true
		}
		delete(pl.leaving, pod)
	}
	return false
}

// choose returns the groups of a round by name: the groups to try, and groups with a reservation, which are skipped
// if they are not to be tried. A full round also tries groups that did not fit before and have not changed; nextFull
// limits how often that happens.
func (pl *planner) choose(now time.Time) (groups []*core.Group, skipped map[*core.Group]bool, full bool) {
	x := pl.index
	skipped, pl.due, x.alarm = map[*core.Group]bool{}, false, time.Time{}
	for g := range x.waiting {
		if !g.single && g.spec == nil {
			continue
		}
		try := pl.tries(g, now)
		if !try && g.core.Reservation == nil {
			continue
		}
		full = full || try && !g.changed
		groups = append(groups, &g.core)
		skipped[&g.core] = !try
	}
	slices.SortFunc(groups, byName)
	return groups, skipped, full
}

// tries reports whether to try a group now.
func (pl *planner) tries(g *group, now time.Time) bool {
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
	return pl.queue.pods.all(g) && x.admit(g, pl.rights, now)
}

// byName compares groups by their name, which is unique, so that a round does not depend on the order of events.
func byName(a, b *core.Group) int { return cmp.Compare(a.Name, b.Name) }

// cluster returns the input of a round.
func (pl *planner) cluster(ctx context.Context, now time.Time, groups []*core.Group) *core.Cluster {
	x := pl.index
	c := &core.Cluster{Queues: make(map[string]*core.Queue, len(x.queues)), Groups: groups, Nodes: pl.nodes.within(ctx), Now: now,
		ReserveAfter: pl.config.ReserveAfter, Grace: pl.config.Grace, MaxPods: batch, Used: x.used}
	for name, q := range x.queues {
		c.Queues[name] = &q.core
	}
	if pl.nodes.foreseen {
		c.Sites = func(g *core.Group, p *core.Pod) *core.Sites {
			return x.sites.of(x.queues[g.Queue], x.pods[types.UID(p.UID)])
		}
		c.Uncounted = pl.nodes.elsewhere
	}
	c.Running = func() []*core.Group {
		all := make([]*core.Group, 0, len(x.groups))
		for _, g := range x.groups {
			if len(g.core.Pods) > 0 {
				all = append(all, &g.core)
			}
		}
		slices.SortFunc(all, byName)
		return all
	}
	if refusing, err := pl.nodes.snapshot.HavePodsWithRequiredAntiAffinityList(); err == nil {
		c.Shapeless = len(refusing) > 0
	}
	pl.domains(c)
	return c
}

// domains sets the topology domains of the round's input, if a label is configured.
func (pl *planner) domains(c *core.Cluster) {
	label := pl.config.TopologyLabel
	if label == "" {
		return
	}
	list, err := pl.nodes.snapshot.List()
	if err != nil {
		return
	}
	seen := map[string]bool{}
	of := make(map[string]string, len(list))
	for _, info := range list {
		if d := info.Node().Labels[label]; d != "" {
			of[info.Node().Name] = d
			seen[d] = true
		}
	}
	c.Domain = func(node string) string { return of[node] }
	c.Domains = sortedNames(seen)
}

// releaseReservations frees the room of all reservations, because the round places them again. It drops reservations
// whose pods or nodes have changed.
func (pl *planner) releaseReservations(ctx context.Context) {
	for g := range pl.index.waiting {
		h := g.core.Reservation
		if h == nil {
			continue
		}
		valid := g.single || g.spec != nil
		for _, at := range h.Placements {
			pl.nodes.forget(ctx, types.UID(at.Pod.UID))
			valid = valid && !at.Pod.Gone && !at.Pod.Ending && at.Pod.Node == "" && pl.nodes.exists(at.Node)
		}
		if !valid {
			g.core.Reservation = nil
			g.changed = true
		}
	}
}

func (n *nodes) exists(node string) bool {
	_, err := n.cache.GetNode(node)
	return err == nil
}

// discard undoes a round whose changes the scheduler's cache refused, and schedules another round.
func (pl *planner) discard(ctx context.Context, result core.Result, now time.Time) {
	klog.ErrorS(pl.nodes.err, "Discarding a round of planning")
	for uid := range pl.nodes.assumed {
		pl.nodes.forget(ctx, uid)
	}
	clear(pl.nodes.away)
	for _, d := range result.Decisions {
		d.Group.Reservation = nil
	}
	pl.nextFull = now.Add(tick)
	pl.due = true
}

// carryOut executes a decision.
func (pl *planner) carryOut(d *core.Decision, now time.Time) {
	x := pl.index
	g := x.groups[d.Group.Name]
	g.changed, g.tried, g.backoff, g.reportAt = false, x.freed, time.Time{}, time.Time{}
	g.core.Reservation = d.Reservation
	for _, gang := range d.Gangs {
		a := &attempt{group: g, size: len(gang), arrived: map[types.UID]bool{}}
		for _, at := range gang {
			m := x.pods[types.UID(at.Pod.UID)]
			x.place(m, at.Node)
			if pl.conditions.pods.drop(m.pod.UID) { // the pod no longer waits
				m.lastReported = podReport{}
			}
			m.attempt = a
			pl.ready = append(pl.ready, m)
		}
	}
	for _, p := range d.Evict {
		if m := x.pods[types.UID(p.UID)]; m != nil {
			pl.evictions.add(m.pod, d)
		}
	}
	pl.report(g, d, now)
	x.touch(g, now)
}
