package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"tensorstack.dev/batch/internal/scheduler/core"
)

// nodes lets core place pods: pods that wait are assumed in the scheduler's cache, as a scheduling cycle does it, and
// pods that run are taken out of the snapshot alone, which nobody else sees meanwhile: the planner, which owns it, uses
// it while the scheduling goroutine waits for a pod.
type nodes struct {
	logger   klog.Logger
	profile  framework.Framework
	cache    internalcache.Cache
	snapshot *internalcache.Snapshot
	index    *index
	// assumed are the pods that are in the cache on behalf of the planner.
	assumed map[types.UID]*corev1.Pod
	// reserved are the states of those of them for which more is set aside than room.
	reserved map[types.UID]fwk.CycleState
	// away is what has been taken out of the snapshot, by node.
	away map[string]*absence
	// stale: the cache has changed since the snapshot was taken.
	stale bool
	// searches are those of this round, by queue and shape; start is where the next one begins.
	searches map[string]*search
	start    int
	// listed is the snapshot's list of nodes, and sorted the same nodes in the order in which they are looked at.
	listed, sorted []fwk.NodeInfo
	// edits counts changes of the snapshot that the cache knows nothing of.
	edits int64
	err   error
	// uncounted tells of resources that the profile's filters do not look for on nodes. Unless foreseen is true they
	// are others than those that sites knows.
	uncounted func(resource string) bool
	foreseen  bool
}

// elsewhere tells of resources that a pod may get though its node's allocatable does not have them.
func (n *nodes) elsewhere(resource string) bool {
	if n.uncounted(resource) {
		return true
	}
	dra := n.profile.SharedDRAManager()
	return dra != nil && dra.DeviceClassResolver().GetDeviceClass(corev1.ResourceName(resource)) != nil
}

type absence struct {
	generation int64
	pods       map[types.UID]fwk.PodInfo
}

// roundNodes is nodes as core sees them in one round, whose context its functions carry.
type roundNodes struct {
	place     func(p *core.Pod, among func(string) bool) (node string, why func() string)
	put, take func(p *core.Pod, node string)
}

// Place implements core.Nodes.
func (r roundNodes) Place(p *core.Pod, among func(string) bool) (node string, why func() string) {
	return r.place(p, among)
}

// Put implements core.Nodes.
func (r roundNodes) Put(p *core.Pod, node string) { r.put(p, node) }

// Take implements core.Nodes.
func (r roundNodes) Take(p *core.Pod, node string) { r.take(p, node) }

// within is nodes for a round with that context.
func (n *nodes) within(ctx context.Context) roundNodes {
	return roundNodes{put: n.put,
		place: func(p *core.Pod, among func(string) bool) (string, func() string) { return n.place(ctx, p, among) },
		take:  func(p *core.Pod, node string) { n.take(ctx, p, node) }}
}

// begin takes a snapshot for a round.
func (n *nodes) begin() error {
	n.stale, n.err = true, nil
	clear(n.searches)
	n.refresh()
	return n.err
}

// refresh brings the snapshot up to date, without those that are away.
func (n *nodes) refresh() {
	if !n.stale {
		return
	}
	if err := n.cache.UpdateSnapshot(n.logger, n.snapshot); err != nil && n.err == nil {
		n.err = err
	}
	n.stale = false
	for name, a := range n.away {
		if info := n.info(name); info != nil && info.Generation != a.generation { // copied anew from the cache
			n.takeAgain(info, a)
		}
	}
}

// takeAgain takes out of a node what is away. What has gone meanwhile does not come back.
func (n *nodes) takeAgain(info *framework.NodeInfo, a *absence) {
	for uid := range a.pods {
		if a.pods[uid] = find(info, uid); a.pods[uid] == nil {
			delete(a.pods, uid)
			continue
		}
		_ = info.RemovePod(n.logger, a.pods[uid].GetPod()) // it is there
	}
	n.edited(info, a)
}

func (n *nodes) info(node string) *framework.NodeInfo {
	i, err := n.snapshot.Get(node)
	if err != nil {
		return nil
	}
	return i.(*framework.NodeInfo)
}

// edited gives a snapshot's node a generation that it had never before, neither here nor in the cache.
func (n *nodes) edited(info *framework.NodeInfo, a *absence) {
	n.edits++
	info.Generation = -n.edits
	a.generation = info.Generation
}

// find is a pod on a node; nil if it is not there.
func find(info *framework.NodeInfo, uid types.UID) fwk.PodInfo {
	for _, p := range info.Pods {
		if p.GetPod().UID == uid {
			return p
		}
	}
	return nil
}

// put puts a pod on a node without asking whether it fits.
func (n *nodes) put(p *core.Pod, node string) {
	if p.Node == "" {
		n.assume(p, node)
		return
	}
	a := n.away[node]
	if a == nil || a.pods[types.UID(p.UID)] == nil {
		return
	}
	pod := a.pods[types.UID(p.UID)]
	delete(a.pods, types.UID(p.UID))
	if info := n.info(node); info != nil && info.Generation == a.generation && find(info, types.UID(p.UID)) == nil {
		info.AddPodInfo(pod)
		n.edited(info, a)
	}
	if len(a.pods) == 0 {
		delete(n.away, node)
	}
}

// take takes a pod off a node.
func (n *nodes) take(ctx context.Context, p *core.Pod, node string) {
	uid := types.UID(p.UID)
	if p.Node == "" {
		n.forget(ctx, uid)
		return
	}
	n.refresh()
	info := n.info(node)
	if info == nil {
		return
	}
	pod := find(info, uid)
	if pod == nil {
		return
	}
	a := n.away[node]
	if a == nil {
		a = &absence{pods: map[types.UID]fwk.PodInfo{}}
		n.away[node] = a
	}
	a.pods[uid] = pod
	_ = info.RemovePod(n.logger, pod.GetPod()) // it is there
	n.edited(info, a)
}

func (n *nodes) assume(p *core.Pod, node string) {
	m := n.index.pods[types.UID(p.UID)]
	if m == nil {
		return
	}
	pod := *m.pod
	pod.Spec.NodeName = node
	if err := n.cache.AssumePod(n.logger, &pod); err != nil {
		n.fail(err)
		return
	}
	n.assumed[pod.UID] = &pod
	n.stale = true
}

// forget gives back the room of a pod that is assumed on behalf of the planner.
func (n *nodes) forget(ctx context.Context, uid types.UID) {
	pod := n.assumed[uid]
	if pod == nil {
		return
	}
	delete(n.assumed, uid)
	n.unreserve(ctx, pod)
	n.stale = true
	if err := n.cache.ForgetPod(n.logger, pod); err != nil {
		n.fail(err)
	}
}

// fail makes the whole round void.
func (n *nodes) fail(err error) {
	if n.err == nil {
		n.err = err
	}
}

// place puts a pod that waits on the best node for it.
func (n *nodes) place(ctx context.Context, p *core.Pod, among func(string) bool) (node string, why func() string) {
	n.refresh()
	m := n.index.pods[types.UID(p.UID)]
	if m == nil || n.err != nil {
		return "", because("the scheduler's view of the cluster is changing")
	}
	state := planningState()
	result, status, _ := n.profile.RunPreFilterPlugins(ctx, state, m.pod)
	if !status.IsSuccess() {
		return "", status.Message
	}
	l, err := n.lookup(state, m, result, among)
	if err != nil {
		return "", err.Error
	}
	if l.run(ctx); len(l.fits) == 0 {
		return "", l.why
	}
	if node, err = l.best(ctx); err != nil {
		return "", err.Error
	}
	n.assume(p, node)
	if n.err != nil {
		return "", n.err.Error
	}
	if status := n.reserve(ctx, state, m.pod.UID); !status.IsSuccess() {
		n.forget(ctx, m.pod.UID)
		return "", status.Message
	}
	return node, nil
}

func because(why string) func() string { return func() string { return why } }
