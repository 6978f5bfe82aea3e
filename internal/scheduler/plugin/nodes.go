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

// enough is how many nodes that fit are looked at before the best of them is taken.
const enough = 100

// nodes lets core place pods: pods that wait are assumed in the scheduler's cache, as a scheduling cycle does it, and pods
// that run are taken out of the snapshot alone, which nobody else sees meanwhile. It is used on the scheduling goroutine only.
type nodes struct {
	ctx      context.Context
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
	start int
	err   error
}

type absence struct {
	generation int64
	pods       map[types.UID]*corev1.Pod
}

// begin takes a snapshot for a round.
func (n *nodes) begin() error {
	n.stale, n.err = true, nil
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
			a.generation = info.Generation
			for _, pod := range a.pods {
				remove(n.logger, info, pod)
			}
		}
	}
}

func (n *nodes) info(node string) *framework.NodeInfo {
	i, err := n.snapshot.Get(node)
	if err != nil {
		return nil
	}
	return i.(*framework.NodeInfo)
}

// remove takes a pod out of a snapshot's node, if it is there, and leaves the generation as it is.
func remove(logger klog.Logger, info *framework.NodeInfo, pod *corev1.Pod) {
	generation := info.Generation
	_ = info.RemovePod(logger, pod) // it may have gone from the cache meanwhile
	info.Generation = generation
}

func has(info *framework.NodeInfo, uid types.UID) bool {
	for _, p := range info.Pods {
		if p.GetPod().UID == uid {
			return true
		}
	}
	return false
}

// Put implements core.Nodes.
func (n *nodes) Put(p *core.Pod, node string) {
	if p.Node == "" {
		n.assume(p, node)
		return
	}
	a := n.away[node]
	if a == nil || a.pods[types.UID(p.UID)] == nil {
		return
	}
	pod := a.pods[types.UID(p.UID)]
	delete(a.pods, pod.UID)
	if info := n.info(node); info != nil && info.Generation == a.generation && !has(info, pod.UID) {
		if podInfo, err := framework.NewPodInfo(pod); err == nil {
			info.AddPodInfo(podInfo)
			info.Generation = a.generation
		}
	}
	if len(a.pods) == 0 {
		delete(n.away, node)
	}
}

// Take implements core.Nodes.
func (n *nodes) Take(p *core.Pod, node string) {
	uid := types.UID(p.UID)
	if p.Node == "" {
		n.forget(uid)
		return
	}
	n.refresh()
	m, info := n.index.pods[uid], n.info(node)
	if m == nil || info == nil || !has(info, uid) {
		return
	}
	pod := m.pod
	for _, i := range info.Pods {
		if i.GetPod().UID == uid {
			pod = i.GetPod()
		}
	}
	a := n.away[node]
	if a == nil {
		a = &absence{generation: info.Generation, pods: map[types.UID]*corev1.Pod{}}
		n.away[node] = a
	}
	a.pods[uid] = pod
	remove(n.logger, info, pod)
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
func (n *nodes) forget(uid types.UID) {
	pod := n.assumed[uid]
	if pod == nil {
		return
	}
	delete(n.assumed, uid)
	n.unreserve(pod)
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

// Place implements core.Nodes.
func (n *nodes) Place(p *core.Pod, among func(string) bool) (node, why string) {
	n.refresh()
	m := n.index.pods[types.UID(p.UID)]
	if m == nil || n.err != nil {
		return "", "the scheduler's view of the cluster is changing"
	}
	state := framework.NewCycleState()
	result, status, _ := n.profile.RunPreFilterPlugins(n.ctx, state, m.pod)
	if !status.IsSuccess() {
		return "", status.Message()
	}
	fits, why := n.filter(state, m, result, among)
	if len(fits) == 0 {
		return "", why
	}
	node, err := n.best(state, m.pod, fits)
	if err != nil {
		return "", err.Error()
	}
	n.assume(p, node)
	if n.err != nil {
		return "", n.err.Error()
	}
	if status := n.reserve(state, m.pod.UID); !status.IsSuccess() {
		n.forget(m.pod.UID)
		return "", status.Message()
	}
	return node, ""
}

// filter finds nodes that fit, beginning where the last search ended.
func (n *nodes) filter(state fwk.CycleState, m *member, result *fwk.PreFilterResult, among func(string) bool) (fits []fwk.NodeInfo, why string) {
	all, err := n.snapshot.List()
	if err != nil {
		return nil, err.Error()
	}
	q := n.index.queues[m.group.queue()]
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	notAllowed := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are not of the queue")
	notAmong := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are elsewhere")
	seen := 0
	for i := range all {
		info := all[(n.start+i)%len(all)]
		seen = i + 1
		name := info.Node().Name
		switch {
		case among != nil && !among(name), !result.AllNodes() && !result.NodeNames.Has(name):
			diagnosis.NodeToStatus.Set(name, notAmong)
			continue
		case !q.allows(info.Node()):
			diagnosis.NodeToStatus.Set(name, notAllowed)
			continue
		}
		if status := n.profile.RunFilterPluginsWithNominatedPods(n.ctx, state, m.pod, info); !status.IsSuccess() {
			diagnosis.NodeToStatus.Set(name, status)
			continue
		}
		if fits = append(fits, info); len(fits) == enough {
			break
		}
	}
	if len(all) > 0 {
		n.start = (n.start + seen) % len(all)
	}
	if len(fits) == 0 {
		why = (&framework.FitError{Pod: m.pod, NumAllNodes: len(all), Diagnosis: diagnosis}).Error()
	}
	return fits, why
}

// best is the node with the highest score.
func (n *nodes) best(state fwk.CycleState, pod *corev1.Pod, fits []fwk.NodeInfo) (string, error) {
	if len(fits) == 1 {
		return fits[0].Node().Name, nil
	}
	if status := n.profile.RunPreScorePlugins(n.ctx, state, pod, fits); !status.IsSuccess() {
		return "", status.AsError()
	}
	scores, status := n.profile.RunScorePlugins(n.ctx, state, pod, fits)
	if !status.IsSuccess() {
		return "", status.AsError()
	}
	best := 0
	for i := range scores {
		if scores[i].TotalScore > scores[best].TotalScore {
			best = i
		}
	}
	return scores[best].Name, nil
}
