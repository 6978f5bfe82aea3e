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

// nodes implements placement for core. It assumes waiting pods in the scheduler's cache, as a scheduling cycle does.
// It removes running pods from the snapshot only, which nobody else reads: the planner owns the snapshot while the
// scheduling goroutine waits for a pod.
type nodes struct {
	logger   klog.Logger
	profile  framework.Framework
	cache    internalcache.Cache
	snapshot *internalcache.Snapshot
	index    *index
	// assumed are the pods that the planner has assumed in the cache.
	assumed map[types.UID]*corev1.Pod
	// reserved are the cycle states of assumed pods for which Reserve plugins hold volumes or devices.
	reserved map[types.UID]fwk.CycleState
	// away are the pods that have been removed from the snapshot, by node.
	away map[string]*absence
	// stale means that the cache has changed since the snapshot was taken.
	stale bool
	// searches are the searches of this round, by queue and shape.
	searches map[string]*search
	order    nodeOrder
	// edits counts the changes of the snapshot that are not in the cache.
	edits int64
	err   error
	// uncounted reports whether the profile's filters ignore a resource. Foreseen means that the filters are those
	// that sites evaluates.
	uncounted func(resource string) bool
	foreseen  bool
}

// elsewhere reports whether a pod may get a resource that is not in the allocatable of its node.
func (n *nodes) elsewhere(resource string) bool {
	if n.uncounted(resource) {
		return true
	}
	dra := n.profile.SharedDRAManager()
	return dra != nil && dra.DeviceClassResolver().GetDeviceClass(corev1.ResourceName(resource)) != nil
}

// absence holds the pods that have been removed from one node of the snapshot.
type absence struct {
	generation int64
	pods       map[types.UID]fwk.PodInfo
}

// roundNodes implements core.Nodes for one round. Its functions carry the context of the round.
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

// within returns the nodes for a round that runs with ctx.
func (n *nodes) within(ctx context.Context) roundNodes {
	return roundNodes{put: n.put,
		place: func(p *core.Pod, among func(string) bool) (string, func() string) { return n.place(ctx, p, among) },
		take:  func(p *core.Pod, node string) { n.take(ctx, p, node) }}
}

// begin takes the snapshot for a round.
func (n *nodes) begin() error {
	n.stale, n.err = true, nil
	clear(n.searches)
	n.refresh()
	n.order.check()
	return n.err
}

// refresh updates the snapshot, and removes the pods in away again.
func (n *nodes) refresh() {
	if !n.stale {
		return
	}
	if err := n.cache.UpdateSnapshot(n.logger, n.snapshot); err != nil && n.err == nil {
		n.err = err
	}
	n.stale = false
	for name, a := range n.away {
		if info := n.info(name); info != nil && info.Generation != a.generation { // the snapshot has a new copy from the cache
			n.takeAgain(info, a)
		}
	}
}

// takeAgain removes the pods of an absence from a node again. It drops those that the cache no longer has.
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

// edited gives a node of the snapshot a generation that neither the snapshot nor the cache has used before.
func (n *nodes) edited(info *framework.NodeInfo, a *absence) {
	n.edits++
	info.Generation = -n.edits
	a.generation = info.Generation
}

// find returns the pod of this UID on a node; nil if it is not there.
func find(info *framework.NodeInfo, uid types.UID) fwk.PodInfo {
	for _, p := range info.Pods {
		if p.GetPod().UID == uid {
			return p
		}
	}
	return nil
}

// put puts a pod on a node without a check that it fits.
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

// take removes a pod from a node.
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

// forget frees the room of a pod that the planner has assumed.
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

// fail records the first error of a round, which voids the whole round.
func (n *nodes) fail(err error) {
	if n.err == nil {
		n.err = err
	}
}

// place assumes a waiting pod on the best node for it.
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
