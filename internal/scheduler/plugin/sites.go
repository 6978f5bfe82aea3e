package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// sites are the empty nodes that pods may use, by the constraints of the pods. They are valid until a node or a queue
// changes.
type sites struct {
	topologyLabel string
	nodes         []*corev1.Node
	// rooms and kinds describe the nodes, in the same order. Nodes of one kind are alike for all pods that may use
	// them.
	rooms []core.Resources
	kinds []string
	known map[string]*core.Sites
}

func newSites(nodes []*corev1.Node, topologyLabel string) *sites {
	s := &sites{topologyLabel: topologyLabel, nodes: nodes, known: map[string]*core.Sites{}}
	for _, n := range nodes {
		room := amounts(n.Status.Allocatable)
		var kind strings.Builder
		for _, name := range sortedNames(room) {
			fmt.Fprintf(&kind, "%s=%d,", name, room[name])
		}
		kind.WriteString(s.domain(n))
		s.rooms, s.kinds = append(s.rooms, room), append(s.kinds, kind.String())
	}
	return s
}

func (s *sites) domain(n *corev1.Node) string {
	if s.topologyLabel == "" {
		return ""
	}
	return n.Labels[s.topologyLabel]
}

// of returns the nodes that a pod of a queue may use by its labels and taints.
func (s *sites) of(q *queue, m *member) *core.Sites {
	key := q.core.Name + "\x00" + m.constraints
	if s.known[key] == nil {
		s.known[key] = s.find(q, m.pod)
	}
	return s.known[key]
}

func (s *sites) find(q *queue, pod *corev1.Pod) *core.Sites {
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	byKind := map[string]int{}
	var all []core.Site
	var ofQueue []*corev1.Node
	var taints taintedNodes
	for i, n := range s.nodes {
		if !q.allows(n) {
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
		lack = fmt.Sprintf("no node matches the nodeSelector of queue %s (%s): label a node so, or change the queue", q.core.Name, metav1.FormatLabelSelector(q.spec.NodeSelector))
	default:
		lack = missingLabel(q, pod, ofQueue)
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

func (t *taintedNodes) String() string {
	switch t.n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 node that its labels allow has the taint %s, which its pods do not tolerate: let them tolerate it", t.first.ToString())
	default:
		return fmt.Sprintf("%d nodes that its labels allow have taints that its pods do not tolerate, such as %s: let them tolerate it", t.n, t.first.ToString())
	}
}

// passing are prefixes of taints that come and go by themselves. A group is not reported as impossible because a node
// restarts.
var passing = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "startup-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/", "karpenter.sh/", "node.cilium.io/"}

// lastingTaint returns a taint that keeps a pod off a node and that does not go away by itself.
func lastingTaint(n *corev1.Node, pod *corev1.Pod) (corev1.Taint, bool) {
	lasts := func(t *corev1.Taint) bool {
		keepsAway := t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		return keepsAway && !slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(t.Key, prefix) })
	}
	// Comparison operators of tolerations are an alpha feature. If it is off, this may miss a taint.
	return corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, lasts, true)
}

// missingLabel returns the message for a pod whose required labels no node has.
func missingLabel(q *queue, pod *corev1.Pod, nodes []*corev1.Node) string {
	whose := "no node"
	if q.selector != nil {
		whose = "no node of queue " + q.core.Name
	}
	selector := pod.Spec.NodeSelector
	for _, key := range sortedNames(selector) {
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { v, ok := n.Labels[key]; return ok && v == selector[key] }) {
			return fmt.Sprintf("%s has the label %s=%s, which the pods select: label a node so, or select another label", whose, key, selector[key])
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return whose + " has all of the labels together that the pods select: label a node so, or select fewer"
	}
	return whose + " matches the required nodeAffinity of the pods together with their nodeSelector: label a node so, or change what they require"
}

// constraintsOf returns a string that is equal for pods that may use the same nodes by labels and taints.
func constraintsOf(pod *corev1.Pod) string {
	asked := struct {
		Selector    map[string]string    `json:",omitempty"`
		Affinity    *corev1.NodeSelector `json:",omitempty"`
		Tolerations []corev1.Toleration  `json:",omitempty"`
	}{Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		asked.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	text, err := json.Marshal(asked)
	if err != nil { // these types always marshal
		return string(pod.UID)
	}
	return string(text)
}

// judged are the framework's filters whose result on an empty node sites computes.
var judged = []string{names.NodeResourcesFit, names.NodeAffinity, names.TaintToleration}

// uncountedResources returns which resources the profile's filters do not count on nodes. Foreseen reports whether
// the profile has the filters that sites evaluates; otherwise no group is reported as impossible for want of nodes.
func uncountedResources(profiles []config.KubeSchedulerProfile, filters []config.Plugin) (uncounted func(string) bool, foreseen bool) {
	for _, name := range judged {
		if !slices.ContainsFunc(filters, func(p config.Plugin) bool { return p.Name == name }) {
			return nil, false
		}
	}
	var resources, groups []string
	for _, p := range profiles {
		if p.SchedulerName != scheduling.SchedulerName {
			continue
		}
		for _, c := range p.PluginConfig {
			if args, ok := c.Args.(*config.NodeResourcesFitArgs); ok {
				resources, groups = append(resources, args.IgnoredResources...), append(groups, args.IgnoredResourceGroups...)
			}
		}
	}
	return func(resource string) bool {
		group, _, _ := strings.Cut(resource, "/")
		return slices.Contains(resources, resource) || slices.Contains(groups, group)
	}, true
}
