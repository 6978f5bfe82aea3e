package placement

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"tensorstack.dev/batch/internal/scheduler/core"
)

const (
	// enough is the number of fitting nodes after which the search stops and takes the best of them.
	enough = 100
	// maxSearches limits the number of cached searches, because each may hold all nodes.
	maxSearches = 16
)

// search is the cached state of nodes for pods of one shape within one round. The search for the next pod of a gang
// skips nodes that have not changed.
type search struct {
	// from is the position in the list of nodes at which the search began. found holds the results for the nodes from
	// that position on.
	from  int
	found []finding
}

// finding holds the result of the filters, and the score if scored, for one node.
type finding struct {
	info       *framework.NodeInfo
	generation int64
	// status is nil if the pod fits on the node.
	status *fwk.Status
	scored bool
	score  int64
}

// current reports whether the node is unchanged since the finding was made.
func (f *finding) current(info *framework.NodeInfo) bool {
	return f.info == info && f.generation == info.Generation
}

// lookup is the search for a node for one pod.
type lookup struct {
	*Nodes
	*search
	state fwk.CycleState
	pod   *Pod
	all   []fwk.NodeInfo
	// refuse returns why a node must not be examined; nil for all other nodes. If refuse is nil, all nodes are
	// examined.
	refuse func(name string) *fwk.Status
	// fits are the positions in found of the nodes on which the pod fits.
	fits []int
}

var elsewhere = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are elsewhere")
var notOfQueue = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are not of the queue")

// lookup prepares the search for a node for a pod. The PreFilter plugins must have run.
func (n *Nodes) lookup(state fwk.CycleState, p *core.Pod, w *Pod, result *fwk.PreFilterResult, among func(string) bool) (*lookup, error) {
	listed, err := n.snapshot.List()
	if err != nil {
		return nil, err
	}
	all := n.order.of(listed)
	l := &lookup{Nodes: n, state: state, pod: w, all: all}
	if among != nil || !result.AllNodes() {
		l.refuse = func(name string) *fwk.Status {
			if among != nil && !among(name) || !result.AllNodes() && !result.NodeNames.Has(name) {
				return elsewhere
			}
			return nil
		}
	}
	l.search = n.searchFor(state, w, p.Shape, len(all))
	return l, nil
}

// searchFor returns the search that the pods of a shape in one queue share. If the pod has no shape or its fit depends
// on other pods, it returns a new search that is not shared. A new search begins at a node that depends only on the
// group and on the number of nodes, so that groups spread over a large cluster and equal rounds decide alike.
func (n *Nodes) searchFor(state fwk.CycleState, w *Pod, shape string, nodes int) *search {
	from := w.position(nodes)
	if shape == "" || !state.GetSkipFilterPlugins().HasAll(names.InterPodAffinity, names.PodTopologySpread) {
		return &search{from: from}
	}
	key := w.Pool.Queue() + "\x00" + shape
	s := n.searches[key]
	if s == nil {
		if len(n.searches) == maxSearches {
			clear(n.searches)
		}
		s = &search{from: from}
		n.searches[key] = s
	}
	return s
}

// position returns a position below n that depends only on n and the group, so that it is the same in all rounds and
// usually differs between groups. It returns 0 if n is 0.
func (w *Pod) position(n int) int {
	if n == 0 {
		return 0
	}
	hash := fnv.New32a()
	hash.Write([]byte(w.Group))
	return int(hash.Sum32() % uint32(n))
}

// run examines nodes until the pod fits on enough of them.
func (l *lookup) run(ctx context.Context) {
	for i := range l.all {
		info := l.all[(l.from+i)%len(l.all)].(*framework.NodeInfo)
		if i == len(l.found) {
			l.found = append(l.found, finding{})
		}
		if l.refuse != nil && l.refuse(info.Node().Name) != nil {
			continue
		}
		f := &l.found[i]
		if !f.current(info) {
			*f = finding{info: info, generation: info.Generation, status: l.filter(ctx, info)}
		}
		if f.status != nil {
			continue
		}
		if l.fits = append(l.fits, i); len(l.fits) == enough {
			return
		}
	}
}

// filter runs the filters for one node.
func (l *lookup) filter(ctx context.Context, info *framework.NodeInfo) *fwk.Status {
	if !l.pod.Pool.Allows(info.Node()) {
		return notOfQueue
	}
	if status := l.profile.RunFilterPluginsWithNominatedPods(ctx, l.state, l.pod.Object, info); !status.IsSuccess() {
		return status
	}
	return nil
}

// why explains why the pod fits on no node, in the words of kube-scheduler. run must have found no node.
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
	return (&framework.FitError{Pod: l.pod.Object, NumAllNodes: len(l.all), Diagnosis: d}).Error()
}

// best returns the node with the highest score among the nodes on which the pod fits.
func (l *lookup) best(ctx context.Context) (string, error) {
	infos := make([]fwk.NodeInfo, len(l.fits))
	for i, at := range l.fits {
		infos[i] = l.found[at].info
	}
	if len(infos) == 1 {
		return infos[0].Node().Name, nil
	}
	if status := l.profile.RunPreScorePlugins(ctx, l.state, l.pod.Object, infos); !status.IsSuccess() {
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
		scores, status := l.profile.RunScorePlugins(ctx, l.state, l.pod.Object, infos)
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

// independent reports whether the score of a node depends only on that node, so that the score stays valid until the
// node changes. A score that is normalized over all nodes is not independent.
func (l *lookup) independent(infos []fwk.NodeInfo) bool {
	if !l.state.GetSkipScorePlugins().HasAll(names.InterPodAffinity, names.PodTopologySpread, names.NodeAffinity) {
		return false
	}
	return !slices.ContainsFunc(infos, func(info fwk.NodeInfo) bool {
		return slices.ContainsFunc(info.Node().Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
	})
}
