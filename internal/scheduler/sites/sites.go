package sites

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/podspec"
)

// Sites are the empty nodes that pods may use, by the constraints of the pods. They are valid until a node or a queue
// changes. They cache their answers, so only one goroutine at a time may use them.
type Sites struct {
	topologyLabel string
	nodes         []*corev1.Node
	// rooms and kinds describe the nodes, in the same order. Nodes of one kind are alike for all pods that may use
	// them.
	rooms []core.Resources
	kinds []string
	known map[string]*core.Sites
}

// New returns the sites of a cluster with these nodes. The topology label is empty if there are no topology domains.
func New(nodes []*corev1.Node, topologyLabel string) *Sites {
	s := &Sites{topologyLabel: topologyLabel, nodes: nodes, known: map[string]*core.Sites{}}
	for _, n := range nodes {
		room := podspec.Amounts(n.Status.Allocatable)
		var kind strings.Builder
		for _, name := range slices.Sorted(maps.Keys(room)) {
			fmt.Fprintf(&kind, "%s=%d,", name, room[name])
		}
		kind.WriteString(s.domain(n))
		s.rooms, s.kinds = append(s.rooms, room), append(s.kinds, kind.String())
	}
	return s
}

func (s *Sites) domain(n *corev1.Node) string {
	if s.topologyLabel == "" {
		return ""
	}
	return n.Labels[s.topologyLabel]
}

// Of returns the nodes of a pool that a pod may use according to their labels and taints. constraints is the result of
// podspec.Constraints for the pod.
func (s *Sites) Of(pool *Pool, pod *corev1.Pod, constraints string) *core.Sites {
	key := pool.Queue() + "\x00" + constraints
	if s.known[key] == nil {
		s.known[key] = s.find(pool, pod)
	}
	return s.known[key]
}

func (s *Sites) find(pool *Pool, pod *corev1.Pod) *core.Sites {
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	byKind := map[string]int{}
	var all []core.Site
	var ofQueue []*corev1.Node
	var taints taintedNodes
	for i, n := range s.nodes {
		if !pool.Allows(n) {
			continue
		}
		ofQueue = append(ofQueue, n)
		if match, err := required.Match(n); err == nil && !match {
			continue
		}
		if taint, ok := lastingTaint(n, pod); ok {
			taints.add(taint)
			continue
		}
		at, ok := byKind[s.kinds[i]]
		if !ok {
			at = len(all)
			byKind[s.kinds[i]] = at
			all = append(all, core.Site{Room: s.rooms[i], Domain: s.domain(n)})
		}
		all[at].Count++
	}
	lack := taints.String()
	switch {
	case len(all) > 0 || lack != "":
	case len(s.nodes) == 0:
		lack = "the cluster has no node: add one"
	case len(ofQueue) == 0:
		lack = fmt.Sprintf("no node matches the nodeSelector of queue %s (%s): label a node so, or change the queue", pool.queue, metav1.FormatLabelSelector(pool.nodeSelector))
	default:
		lack = missingLabel(pool, pod, ofQueue)
	}
	return core.NewSites(all, lack)
}

// taintedNodes counts the nodes that a pod may not use because of their taints.
type taintedNodes struct {
	n     int
	first corev1.Taint
}

func (t *taintedNodes) add(taint corev1.Taint) {
	if t.n++; t.n == 1 {
		t.first = taint
	}
}

// String returns a message about the tainted nodes; empty if there are none.
func (t *taintedNodes) String() string {
	switch t.n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 node that its node selector and affinity allow has the taint %s, which its pods do not tolerate: let them tolerate it", t.first.ToString())
	default:
		return fmt.Sprintf("%d nodes that its node selector and affinity allow have taints that its pods do not tolerate, such as %s: let them tolerate it", t.n, t.first.ToString())
	}
}

// passing lists prefixes of the keys of temporary taints. Temporary taints are ignored, so that a group is not reported
// as impossible while a node restarts.
var passing = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "startup-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/", "karpenter.sh/", "node.cilium.io/"}

// lastingTaint returns a taint that excludes a pod from a node and is not temporary, and true; or false if there is
// none.
func lastingTaint(n *corev1.Node, pod *corev1.Pod) (corev1.Taint, bool) {
	lasts := func(t *corev1.Taint) bool {
		keepsAway := t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		return keepsAway && !slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(t.Key, prefix) })
	}
	// The comparison operators of tolerations are an alpha feature. If it is disabled, this call may miss a taint.
	return corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, lasts, true)
}

// missingLabel returns the message for a pod whose nodeSelector or required nodeAffinity no node matches.
func missingLabel(pool *Pool, pod *corev1.Pod, nodes []*corev1.Node) string {
	whose := "no node"
	if pool.selector != nil {
		whose = "no node of queue " + pool.queue
	}
	selector := pod.Spec.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { v, ok := n.Labels[key]; return ok && v == selector[key] }) {
			return fmt.Sprintf("%s has the label %s=%s, which the pods select: label a node so, or select another label", whose, key, selector[key])
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return whose + " has all of the labels together that the pods select: label a node so, or select fewer"
	}
	return whose + " matches the required nodeAffinity of the pods together with their nodeSelector: label a node so, or change what they require"
}
