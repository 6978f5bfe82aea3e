// Package placement places pods on the nodes of a kube-scheduler. It runs the filters and scores of a profile and
// assumes the pods in the scheduler's cache, as a scheduling cycle does. Start reading at Nodes.
package placement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/sites"
)

// Pod is a waiting pod with the data that its placement needs.
type Pod struct {
	Object *corev1.Pod
	// Pool is the set of nodes that the queue of the pod may use.
	Pool *sites.Pool
	// Group identifies the group of the pod. The searches for the pods of a group begin at the same node.
	Group string
}

// Nodes implements placement for core. It assumes waiting pods in the scheduler's cache. It removes running pods only
// from the snapshot. The planner owns Nodes, and it owns the snapshot while the scheduling goroutine waits for a pod,
// so no other goroutine reads the snapshot during a round. The scheduler's event handlers share the cache, so the cache
// may change during a round.
type Nodes struct {
	logger   klog.Logger
	profile  framework.Framework
	cache    internalcache.Cache
	snapshot *internalcache.Snapshot
	// waiting returns the waiting pod of this round with the given UID; nil if there is none.
	waiting func(types.UID) *Pod
	// assumed holds, by UID, the copies of waiting pods, with their nodes, that Nodes has assumed in the cache and not
	// forgotten.
	assumed map[types.UID]*corev1.Pod
	// reserved are the cycle states, by UID, of assumed pods for which Reserve plugins hold volumes or devices.
	reserved map[types.UID]fwk.CycleState
	// away are the pods that have been removed from the snapshot, by node.
	away map[string]*absence
	// stale is true if the snapshot must be updated: when a round begins, and after Nodes has changed the cache.
	stale bool
	// searches are the searches of this round, by queue and shape.
	searches map[string]*search
	order    order
	// edits counts the changes of the snapshot that were not made in the cache.
	edits int64
	err   error
	// ignored reports whether the profile's filters ignore a resource; nil if the profile lacks a filter that package
	// sites evaluates.
	ignored func(resource string) bool
}

// New returns the nodes of a scheduler with these profiles. fw is the framework of the t9k-scheduler's profile.
func New(logger klog.Logger, fw framework.Framework, cache internalcache.Cache, profiles []config.KubeSchedulerProfile) (*Nodes, error) {
	snapshot, ok := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("the scheduler's snapshot is a %T", fw.SnapshotSharedLister())
	}
	return &Nodes{logger: logger, profile: fw, cache: cache, snapshot: snapshot, ignored: ignoredResources(profiles, fw.ListPlugins().Filter.Enabled),
		assumed: map[types.UID]*corev1.Pod{}, reserved: map[types.UID]fwk.CycleState{}, away: map[string]*absence{}, searches: map[string]*search{}}, nil
}

// absence holds the pods that have been removed from one node of the snapshot, by UID. generation is the generation
// that the node got when it was last edited.
type absence struct {
	generation int64
	pods       map[types.UID]fwk.PodInfo
}

// roundNodes implements core.Nodes for one round. Its functions capture the context of the round, because core does no
// I/O and has no contexts.
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

// Within returns the nodes for a round that runs with ctx.
func (n *Nodes) Within(ctx context.Context) core.Nodes {
	return roundNodes{put: n.put,
		place: func(p *core.Pod, among func(string) bool) (string, func() string) { return n.place(ctx, p, among) },
		take:  func(p *core.Pod, node string) { n.take(ctx, p, node) }}
}

// Begin takes the snapshot for a round. waiting returns the waiting pod with the given UID; nil if there is none.
func (n *Nodes) Begin(waiting func(types.UID) *Pod) error {
	n.waiting, n.stale, n.err = waiting, true, nil
	clear(n.searches)
	n.refresh()
	n.order.check()
	return n.err
}

// Err returns the first error since Begin; nil if there is none. An error voids the whole round.
func (n *Nodes) Err() error { return n.err }

// Reset frees the room of all assumed pods, and forgets which pods have been removed from the snapshot.
func (n *Nodes) Reset(ctx context.Context) {
	for uid := range n.assumed {
		n.Forget(ctx, uid)
	}
	clear(n.away)
}

// refresh updates the snapshot if it is stale, and removes the pods in away again.
func (n *Nodes) refresh() {
	if !n.stale {
		return
	}
	if err := n.cache.UpdateSnapshot(n.logger, n.snapshot); err != nil && n.err == nil {
		n.err = err
	}
	n.stale = false
	for name, a := range n.away {
		// The snapshot has a new copy from the cache.
		if info := n.info(name); info != nil && info.Generation != a.generation {
			n.takeAgain(info, a)
		}
	}
}

// takeAgain removes the pods of an absence from a node again. It drops the pods that the cache no longer has.
func (n *Nodes) takeAgain(info *framework.NodeInfo, a *absence) {
	for uid := range a.pods {
		if a.pods[uid] = find(info, uid); a.pods[uid] == nil {
			delete(a.pods, uid)
			continue
		}
		_ = info.RemovePod(n.logger, a.pods[uid].GetPod()) // the node has the pod
	}
	n.edited(info, a)
}

func (n *Nodes) info(node string) *framework.NodeInfo {
	i, err := n.snapshot.Get(node)
	if err != nil {
		return nil
	}
	return i.(*framework.NodeInfo)
}

// edited gives a node of the snapshot a generation that neither the snapshot nor the cache has used before.
func (n *Nodes) edited(info *framework.NodeInfo, a *absence) {
	n.edits++
	info.Generation = -n.edits
	a.generation = info.Generation
}

// find returns the pod with this UID on a node; nil if there is none.
func find(info *framework.NodeInfo, uid types.UID) fwk.PodInfo {
	for _, p := range info.Pods {
		if p.GetPod().UID == uid {
			return p
		}
	}
	return nil
}

// put assumes a waiting pod on a node without a check that the pod fits, or restores a running pod that take removed
// from the snapshot.
func (n *Nodes) put(p *core.Pod, node string) {
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

// take forgets a waiting pod that was assumed on a node, or removes a running pod from the snapshot.
func (n *Nodes) take(ctx context.Context, p *core.Pod, node string) {
	uid := types.UID(p.UID)
	if p.Node == "" {
		n.Forget(ctx, uid)
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
	_ = info.RemovePod(n.logger, pod.GetPod()) // the node has the pod
	n.edited(info, a)
}

func (n *Nodes) assume(p *core.Pod, node string) {
	w := n.waiting(types.UID(p.UID))
	if w == nil {
		return
	}
	pod := *w.Object
	pod.Spec.NodeName = node
	if err := n.cache.AssumePod(n.logger, &pod); err != nil {
		n.fail(err)
		return
	}
	n.assumed[pod.UID] = &pod
	n.stale = true
}

// Forget frees the room of a pod that has been assumed. For other pods it does nothing.
func (n *Nodes) Forget(ctx context.Context, uid types.UID) {
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
func (n *Nodes) fail(err error) {
	if n.err == nil {
		n.err = err
	}
}

// place assumes a waiting pod on the best node for it. Its results are those of core.Nodes.Place.
func (n *Nodes) place(ctx context.Context, p *core.Pod, among func(string) bool) (node string, why func() string) {
	n.refresh()
	w := n.waiting(types.UID(p.UID))
	if w == nil || n.err != nil {
		return "", because("the scheduler's view of the cluster is changing")
	}
	state := planningState()
	result, status, _ := n.profile.RunPreFilterPlugins(ctx, state, w.Object)
	if !status.IsSuccess() {
		return "", status.Message
	}
	l, err := n.lookup(state, p, w, result, among)
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
	if status := n.reserve(ctx, state, w.Object.UID); !status.IsSuccess() {
		n.Forget(ctx, w.Object.UID)
		return "", status.Message
	}
	return node, nil
}

func because(why string) func() string { return func() string { return why } }
