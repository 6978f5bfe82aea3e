package plugin

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilnode "k8s.io/component-helpers/node/topology"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

const (
	// enough is how many nodes that fit are looked at before the best of them is taken.
	enough = 100
	// mostSearches bounds what is remembered: each search may know of all nodes.
	mostSearches = 16
)

// search is what is known about nodes for pods of one shape within one round: a node that has not changed since is not looked at
// again for the next pod of a gang.
type search struct {
	// from is where in the list of nodes the search began; found are the nodes from there on, as far as it came.
	from  int
	found []finding
}

// finding is what was found out about one node.
type finding struct {
	info       *framework.NodeInfo
	generation int64
	// status is nil if the node fits.
	status *fwk.Status
	scored bool
	score  int64
}

// current tells whether the node is as it was looked at.
func (f *finding) current(info *framework.NodeInfo) bool {
	return f.info == info && f.generation == info.Generation
}

// lookup is the search for a node for one pod.
type lookup struct {
	*nodes
	*search
	state  fwk.CycleState
	member *member
	queue  *queue
	all    []fwk.NodeInfo
	// refuse tells of nodes that are not to be looked at, and why; nil: none.
	refuse func(name string) *fwk.Status
	// fits are the positions, in found, of the nodes that fit.
	fits []int
}

var elsewhere = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are elsewhere")
var notOfQueue = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are not of the queue")

// lookup prepares the search for a node for a pod for which the PreFilter plugins have run.
func (n *nodes) lookup(state fwk.CycleState, m *member, result *fwk.PreFilterResult, among func(string) bool) (*lookup, error) {
	all, err := n.list()
	if err != nil {
		return nil, err
	}
	queue := m.group.queue()
	l := &lookup{nodes: n, state: state, member: m, queue: n.index.queues[queue], all: all}
	if among != nil || !result.AllNodes() {
		l.refuse = func(name string) *fwk.Status {
			if among != nil && !among(name) || !result.AllNodes() && !result.NodeNames.Has(name) {
				return elsewhere
			}
			return nil
		}
	}
	l.search = n.searchFor(state, queue, m.core.Shape)
	return l, nil
}

// list is the nodes in the order in which they are looked at. That of the snapshot depends on when each of them was added.
func (n *nodes) list() ([]fwk.NodeInfo, error) {
	listed, err := n.snapshot.List()
	if err != nil {
		return nil, err
	}
	if len(listed) != len(n.listed) || len(listed) > 0 && &listed[0] != &n.listed[0] { // the snapshot makes a new list when nodes come or go
		n.listed, n.sorted = listed, acrossZones(listed)
	}
	return n.sorted, nil
}

// acrossZones orders nodes so that neighbours are in different zones, as the snapshot does: of many nodes only some are looked at.
func acrossZones(nodes []fwk.NodeInfo) []fwk.NodeInfo {
	zones := map[string][]fwk.NodeInfo{}
	for _, info := range nodes {
		zone := utilnode.GetZoneKey(info.Node())
		zones[zone] = append(zones[zone], info)
	}
	names := sortedNames(zones)
	for _, zone := range names {
		slices.SortFunc(zones[zone], func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	}
	all := make([]fwk.NodeInfo, 0, len(nodes))
	for i := 0; len(all) < len(nodes); i++ {
		for _, zone := range names {
			if i < len(zones[zone]) {
				all = append(all, zones[zone][i])
			}
		}
	}
	return all
}

// searchFor is the search that pods of a shape share, or one for this pod only if its fit depends on other pods.
func (n *nodes) searchFor(state fwk.CycleState, queue, shape string) *search {
	if shape == "" || !state.GetSkipFilterPlugins().HasAll(names.InterPodAffinity, names.PodTopologySpread) {
		return &search{from: n.start}
	}
	key := queue + "\x00" + shape
	s := n.searches[key]
	if s == nil {
		if len(n.searches) == mostSearches {
			clear(n.searches)
		}
		s = &search{from: n.start}
		n.searches[key] = s
	}
	return s
}

// run finds nodes that fit.
func (l *lookup) run(ctx context.Context) {
	for i := range l.all {
		info := l.all[(l.from+i)%len(l.all)].(*framework.NodeInfo)
		if i == len(l.found) {
			l.found = append(l.found, finding{})
			l.start = (l.start + i + 1) % len(l.all)
		}
		if l.refuse != nil && l.refuse(info.Node().Name) != nil {
			continue
		}
		f := &l.found[i]
		if !f.current(info) {
			*f = finding{info: info, generation: info.Generation, status: l.look(ctx, info)}
		}
		if f.status != nil {
			continue
		}
		if l.fits = append(l.fits, i); len(l.fits) == enough {
			return
		}
	}
}

func (l *lookup) look(ctx context.Context, info *framework.NodeInfo) *fwk.Status {
	if !l.queue.allows(info.Node()) {
		return notOfQueue
	}
	if status := l.profile.RunFilterPluginsWithNominatedPods(ctx, l.state, l.member.pod, info); !status.IsSuccess() {
		return status
	}
	return nil
}

// why tells in the words of kube-scheduler why no node fits.
func (l *lookup) why() string {
	d := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	for i := range l.all {
		name := l.all[(l.from+i)%len(l.all)].Node().Name
		status := l.found[i].status
		if l.refuse != nil {
			if no := l.refuse(name); no != nil {
				status = no
			}
		}
		d.NodeToStatus.Set(name, status)
	}
	return (&framework.FitError{Pod: l.member.pod, NumAllNodes: len(l.all), Diagnosis: d}).Error()
}

// best is the node with the highest score among those that fit.
func (l *lookup) best(ctx context.Context) (string, error) {
	infos := make([]fwk.NodeInfo, len(l.fits))
	for i, at := range l.fits {
		infos[i] = l.found[at].info
	}
	if len(infos) == 1 {
		return infos[0].Node().Name, nil
	}
	if status := l.profile.RunPreScorePlugins(ctx, l.state, l.member.pod, infos); !status.IsSuccess() {
		return "", status.AsError()
	}
	anew := l.fits
	if l.independent(infos) {
		anew, infos = nil, infos[:0]
		for _, at := range l.fits {
			if f := &l.found[at]; !f.scored {
				anew, infos = append(anew, at), append(infos, f.info)
			}
		}
	}
	if len(anew) > 0 {
		scores, status := l.profile.RunScorePlugins(ctx, l.state, l.member.pod, infos)
		if !status.IsSuccess() {
			return "", status.AsError()
		}
		for i, at := range anew {
			l.found[at].score, l.found[at].scored = scores[i].TotalScore, true
		}
	}
	best := slices.MaxFunc(l.fits, func(a, b int) int {
		return cmp.Compare(l.found[a].score, l.found[b].score)
	})
	return l.found[best].info.Node().Name, nil
}

// independent tells whether the score of a node says nothing about others, so that it holds until the node changes. It does not
// where scores are scaled by those of the other nodes.
func (l *lookup) independent(infos []fwk.NodeInfo) bool {
	if !l.state.GetSkipScorePlugins().HasAll(names.InterPodAffinity, names.PodTopologySpread, names.NodeAffinity) {
		return false
	}
	return !slices.ContainsFunc(infos, func(info fwk.NodeInfo) bool {
		return slices.ContainsFunc(info.Node().Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
	})
}
