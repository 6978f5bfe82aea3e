package plugin

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"tensorstack.dev/batch/internal/scheduler/core"
)

const (
	// batch is about how many pods are planned before they are handed out.
	batch = 128
	// fullShare is how many times as long as a round took that looked at everything, the next such one waits.
	fullShare = 19
	// longestPause bounds that wait.
	longestPause = 5 * time.Second
	// syncPoll is how often it is looked whether all caches are filled.
	syncPoll = 20 * time.Millisecond
	// tick is how often deadlines are looked at.
	tick = time.Second
	// reviewEvery is how often everything is looked at without a known reason, in ticks.
	reviewEvery = 30
	// firstBackoff doubles up to longestBackoff with each plan of a group that could not be carried out.
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// popped is what the scheduler's own queue yields.
type popped struct {
	info *framework.QueuedPodInfo
	err  error
}

// planner decides about groups between the scheduling cycles. All its methods run on the scheduling goroutine.
type planner struct {
	*Plugin
	nodes *nodes
	sched *scheduler.Scheduler
	queue *planningQueue
	pop   func(klog.Logger) (*framework.QueuedPodInfo, error)
	pods  chan popped
	// ready are pods with a node that wait for their scheduling cycle; last is the one that has it.
	ready []*ticket
	last  *ticket
	// nextFull is when groups that did not fit may be tried again.
	nextFull time.Time
	due      bool
}

// attach makes a scheduler take its pods from a planner.
func (p *Plugin) attach(ctx context.Context, sched *scheduler.Scheduler, n *nodes) {
	pl := &planner{Plugin: p, nodes: n, sched: sched, queue: p.wrap(sched), pop: sched.NextPod, pods: make(chan popped)}
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) { return pl.next(ctx, logger) }
}

// wrap puts a planningQueue in the place of a scheduler's queue.
func (p *Plugin) wrap(sched *scheduler.Scheduler) *planningQueue {
	q := &planningQueue{sched.SchedulingQueue, p}
	sched.SchedulingQueue = q
	return q
}

// next yields the pod of the next scheduling cycle.
func (pl *planner) next(ctx context.Context, logger klog.Logger) (*framework.QueuedPodInfo, error) {
	pl.started.Do(func() { // they end with ctx and change nothing outside of this process, so nobody waits for them
		go pl.feed(ctx, logger)
		go pl.clock(ctx)
	})
	pl.settleLast()
	for {
		if info := pl.nextReady(logger); info != nil {
			return info, nil
		}
		timer := pl.timer()
		select {
		case <-ctx.Done():
			return nil, nil
		case got := <-pl.pods:
			timer.Stop()
			return got.info, got.err
		case <-pl.woken:
		case <-timer.C:
		}
		timer.Stop()
		pl.round()
	}
}

// timer fires when groups that were passed over are due.
func (pl *planner) timer() *time.Timer {
	if pl.due {
		return time.NewTimer(max(0, time.Until(pl.nextFull)))
	}
	return time.NewTimer(time.Hour)
}

// feed takes pods of other schedulers' profiles out of the scheduler's queue.
func (pl *planner) feed(ctx context.Context, logger klog.Logger) {
	for {
		info, err := pl.pop(logger)
		select {
		case pl.pods <- popped{info, err}:
		case <-ctx.Done():
			return
		}
		if info == nil && err == nil { // the queue is closed
			return
		}
	}
}

// clock wakes the planner for deadlines.
func (pl *planner) clock(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if n%reviewEvery == 0 {
			pl.index.roomMade(false)
			continue
		}
		pl.index.deadlines(time.Now(), pl.config)
	}
}

// deadlines has those groups tried for which time has brought something about.
func (x *index) deadlines(now time.Time, c Config) {
	x.mu.Lock()
	defer x.mu.Unlock()
	starved := false
	for g := range x.waiting {
		// Of those that starve there may be many: they are tried as those are for which something may have been freed.
		starved = starved || c.ReserveAfter > 0 && g.core.Hold == nil && !g.core.Since.IsZero() && now.Sub(g.core.Since) >= c.ReserveAfter
		stranded := !g.core.Partial.IsZero() && now.Sub(g.core.Partial) >= c.Grace
		retried := !g.backoff.IsZero() && now.After(g.backoff)
		unsaid := !g.look.IsZero() && now.After(g.look)
		evicting := g.core.Hold != nil && g.core.Hold.Preempting
		if stranded || retried || unsaid || evicting {
			g.changed = true
			x.wake()
		}
	}
	if starved {
		x.freed++
		x.wake()
	}
}

// round decides about the groups that wait, and makes tickets for the pods that get a node.
func (pl *planner) round() {
	if !pl.synced() { // nothing is decided before everything that runs is known
		pl.nextFull, pl.due = time.Now().Add(syncPoll), true
		return
	}
	x := pl.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.filled {
		x.fill()
	}
	began := time.Now()
	list, err := pl.nodeLister.List(everything)
	if err != nil {
		return
	}
	x.capacities(list, pl.config.TopologyLabel)
	pl.releaseHolds()
	groups, skipped, full := pl.choose(began)
	if len(groups) == 0 {
		return
	}
	if err := pl.nodes.begin(); err != nil {
		klog.ErrorS(err, "Taking a snapshot of the nodes")
		return
	}
	c := pl.cluster(began, groups)
	c.Skip = func(g *core.Group) bool { return skipped[g] }
	pl.planning = true
	result := core.Round(c)
	pl.planning = false
	if pl.nodes.err != nil {
		pl.discard(result)
		return
	}
	missed := false
	for _, d := range result.Decisions {
		missed = missed || len(d.Gangs) == 0
		pl.carryOut(d, began)
	}
	switch {
	case result.More:
		pl.wake()
	case full && missed:
		pl.nextFull = time.Now().Add(min(fullShare*time.Since(began), longestPause))
	}
}

// choose lists the groups of a round, by name: those to be tried, and those for which room is kept, which are skipped if they are
// not to be tried. A full round tries groups again that did not fit; between two of these they wait.
func (pl *planner) choose(now time.Time) (groups []*core.Group, skipped map[*core.Group]bool, full bool) {
	x, early := pl.index, now.Before(pl.nextFull)
	skipped, pl.due = map[*core.Group]bool{}, false
	for g := range x.waiting {
		if !g.single && g.spec == nil {
			continue
		}
		try := !now.Before(g.backoff) && (g.changed || g.tried != x.freed)
		if try && early && !g.changed {
			try, pl.due = false, true
		}
		try = try && pl.arrivals.all(g) && x.admit(g, pl.rights, now)
		if !try && g.core.Hold == nil {
			continue
		}
		full = full || try && !g.changed
		groups = append(groups, &g.core)
		skipped[&g.core] = !try
	}
	slices.SortFunc(groups, byName)
	return groups, skipped, full
}

// byName orders groups, of which no two have the same name: a round decides alike whatever order events came in.
func byName(a, b *core.Group) int { return cmp.Compare(a.Name, b.Name) }

// cluster is what the round sees.
func (pl *planner) cluster(now time.Time, groups []*core.Group) *core.Cluster {
	x := pl.index
	c := &core.Cluster{Queues: make(map[string]*core.Queue, len(x.queues)), Groups: groups, Nodes: pl.nodes, Now: now,
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

// domains tells core about topology, if a label for it is configured.
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

// releaseHolds takes room back that was kept, for the round gives it anew, and drops that of groups that have changed.
func (pl *planner) releaseHolds() {
	for g := range pl.index.waiting {
		h := g.core.Hold
		if h == nil {
			continue
		}
		valid := g.single || g.spec != nil
		for _, at := range h.Placements {
			pl.nodes.forget(types.UID(at.Pod.UID))
			valid = valid && !at.Pod.Gone && !at.Pod.Ending && at.Pod.Node == "" && pl.nodes.exists(at.Node)
		}
		if !valid {
			g.core.Hold = nil
			g.changed = true
		}
	}
}

func (n *nodes) exists(node string) bool {
	_, err := n.cache.GetNode(node)
	return err == nil
}

// discard undoes what a round has done that the scheduler's cache did not follow, and has it done again.
func (pl *planner) discard(result core.Result) {
	klog.ErrorS(pl.nodes.err, "A round of planning came to nothing")
	for uid := range pl.nodes.assumed {
		pl.nodes.forget(uid)
	}
	clear(pl.nodes.away)
	for _, d := range result.Decisions {
		d.Group.Hold = nil
	}
	pl.nextFull = time.Now().Add(tick)
	pl.due = true
}

// carryOut makes a decision real. The index is locked.
func (pl *planner) carryOut(d *core.Decision, now time.Time) {
	x := pl.index
	g := x.groups[d.Group.Name]
	g.changed, g.tried, g.backoff, g.look = false, x.freed, time.Time{}, time.Time{}
	g.core.Hold = d.Hold
	for _, gang := range d.Gangs {
		a := &attempt{plugin: pl.Plugin, group: g, size: len(gang)}
		for _, at := range gang {
			m := x.pods[types.UID(at.Pod.UID)]
			x.place(m, at.Node)
			if pl.conditions.pods.drop(m.pod.UID) { // it does not wait any more
				m.told = told{}
			}
			m.attempt = a
			pl.ready = append(pl.ready, &ticket{attempt: a, pod: m.pod, node: at.Node})
		}
	}
	for _, p := range d.Evict {
		if m := x.pods[types.UID(p.UID)]; m != nil {
			pl.evictions.add(m.pod, d)
		}
	}
	pl.report(g, d, now)
	x.touch(g)
}

// nextReady hands out the next pod that has a node.
func (pl *planner) nextReady(logger klog.Logger) *framework.QueuedPodInfo {
	for len(pl.ready) > 0 {
		t := pl.ready[0]
		pl.ready = pl.ready[1:]
		pl.nodes.forget(t.pod.UID) // the cycle that follows takes the room again
		if t.attempt.failed() {
			pl.giveUp(t.pod.UID)
			continue
		}
		info := pl.queue.take(logger, t)
		if info == nil || info.Pod == nil {
			pl.revoke(t.pod.UID)
			t.attempt.fail("pod " + t.pod.Name + " is no longer in the queue")
			pl.giveUp(t.pod.UID)
			continue
		}
		pl.last = t
		return info
	}
	return nil
}

// settleLast looks at how the last scheduling cycle ended: a pod that did not arrive at Permit ends its gang's attempt.
func (pl *planner) settleLast() {
	t := pl.last
	if t == nil {
		return
	}
	pl.last = nil
	if pl.revoke(t.pod.UID) || !t.attempt.arrived(t.pod.UID) {
		t.attempt.fail("pod " + t.pod.Name + " did not get through its scheduling cycle")
		pl.giveUp(t.pod.UID)
	}
}

func podKey(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
