package view

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// Share is what one owner uses of a resource of a node.
type Share struct {
	// X and W are percentages of the whole.
	X, W  float64
	Title string
	// Colour is the number of the owner's colour.
	Colour int
}

// Meter is a resource of a node and who uses it.
type Meter struct {
	Name, Text string
	Shares     []Share
	// Cells is the number of units that are drawn one by one; 0 if the meter is drawn as a whole.
	Cells int
}

// NodeTile is a node.
type NodeTile struct {
	ID, Name string
	// State is "ready", "not ready" or "cordoned".
	State  string
	Tone   Tone
	Meters []Meter
	Pods   int
}

// Owner is an entry of the legend.
type Owner struct {
	Name, Href string
	Colour     int
	// Pods is the number of its pods on nodes.
	Pods int
}

// NodesPage shows what the nodes are used for.
type NodesPage struct {
	// By is "job" or "queue": whose colours the tiles have.
	By     string
	Views  []Link
	Nodes  []NodeTile
	Owners []Owner
	Hidden []Hidden
}

// NodesInput is what the cluster holds about nodes.
type NodesInput struct {
	Nodes []*corev1.Node
	// Pods are all pods that have a node and have not ended.
	Pods   []*corev1.Pod
	Hidden []Hidden
}

// colours is the number of colours of owners.
const colours = 10

// otherColour is the number of the colour of what belongs to no job and no queue.
const otherColour = -1

// maxCells is the largest number of units of a resource that are drawn one by one.
const maxCells = 16

// Nodes returns the nodes with what uses them, coloured by "job" or by "queue".
func Nodes(in *NodesInput, by string) NodesPage {
	if by != "queue" {
		by = "job"
	}
	p := NodesPage{By: by, Hidden: in.Hidden, Views: []Link{{"by job", "/nodes", by == "job"}, {"by queue", "/nodes?by=queue", by == "queue"}}}
	owners, names := map[string]*Owner{}, map[string]string{}
	on := map[string][]*corev1.Pod{}
	for _, pod := range in.Pods {
		on[pod.Spec.NodeName] = append(on[pod.Spec.NodeName], pod)
		name, href := ownerOf(pod, by)
		o := owners[name]
		if o == nil {
			o = &Owner{Name: name, Href: href}
			owners[name] = o
		}
		o.Pods++
		names[string(pod.UID)] = name
	}
	paint(owners)
	nodes := slices.Clone(in.Nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		p.Nodes = append(p.Nodes, tile(n, on[n.Name], owners, names))
	}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		p.Owners = append(p.Owners, *owners[name])
	}
	slices.SortStableFunc(p.Owners, func(a, b Owner) int { return cmp.Compare(b.Pods, a.Pods) })
	p.Owners = p.Owners[:min(len(p.Owners), 30)]
	return p
}

// ownerOf returns the job or the queue that a pod belongs to, and the path of its page.
func ownerOf(p *corev1.Pod, by string) (name, href string) {
	job := p.Labels[batch.LabelJobName]
	if by == "queue" {
		queue := p.Labels[scheduling.LabelQueue]
		if queue == "" && p.Spec.SchedulerName == scheduling.SchedulerName {
			queue = scheduling.DefaultQueue
		}
		if queue != "" {
			return queue, "/queues#queue-" + queue
		}
		return "no queue", ""
	}
	if kind := KindOf(strings.ToLower(p.Labels[batch.LabelJobKind])); job != "" && kind != nil {
		return p.Namespace + "/" + job, JobPath(kind, p.Namespace, job)
	}
	return "other pods", ""
}

// paint gives each owner a colour: the one that its name asks for, or the next one that nobody has.
func paint(owners map[string]*Owner) {
	taken := map[int]bool{}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		o := owners[name]
		if o.Href == "" {
			o.Colour = otherColour
			continue
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		o.Colour = int(h.Sum32() % colours)
		for k := 0; taken[o.Colour] && k < colours; k++ {
			o.Colour = (o.Colour + 1) % colours
		}
		taken[o.Colour] = true
		if len(taken) == colours {
			clear(taken)
		}
	}
}

func tile(n *corev1.Node, pods []*corev1.Pod, owners map[string]*Owner, names map[string]string) NodeTile {
	t := NodeTile{ID: "node-" + n.Name, Name: n.Name, State: "not ready", Tone: Bad, Pods: len(pods)}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			t.State, t.Tone = "ready", Good
		}
	}
	if n.Spec.Unschedulable {
		t.State, t.Tone = t.State+", cordoned", Wait
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(names[string(a.UID)], names[string(b.UID)]), strings.Compare(a.Name, b.Name))
	})
	for _, name := range metered(n) {
		t.Meters = append(t.Meters, meter(name, n, pods, owners, names))
	}
	return t
}

// metered returns the resources of a node that are shown: the extended ones, then CPU and memory.
func metered(n *corev1.Node) []corev1.ResourceName {
	var all []corev1.ResourceName
	for name, q := range n.Status.Allocatable {
		if strings.Contains(string(name), "/") && !q.IsZero() {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return append(all, corev1.ResourceCPU, corev1.ResourceMemory)
}

func meter(name corev1.ResourceName, n *corev1.Node, pods []*corev1.Pod, owners map[string]*Owner, names map[string]string) Meter {
	whole := n.Status.Allocatable[name]
	m := Meter{Name: string(name)}
	if strings.Contains(m.Name, "/") && whole.Value() <= maxCells {
		m.Cells = int(whole.Value())
	}
	sum := corev1.ResourceList{}
	for _, p := range pods {
		request, ok := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[name]
		if !ok || request.IsZero() {
			continue
		}
		used := sum[name]
		x, owner := share(used, whole), names[string(p.UID)]
		add(sum, corev1.ResourceList{name: request})
		used = sum[name]
		if w := min(100, share(used, whole)) - x; w > 0 {
			if k := len(m.Shares) - 1; k >= 0 && m.Shares[k].Colour == owners[owner].Colour && strings.HasPrefix(m.Shares[k].Title, owner+":") && m.Cells == 0 {
				m.Shares[k].W = round(m.Shares[k].W + w)
				continue
			}
			m.Shares = append(m.Shares, Share{X: x, W: round(w), Colour: owners[owner].Colour, Title: fmt.Sprintf("%s: %s %s", owner, amount(name, request), name)})
		}
	}
	m.Text = amount(name, sum[name]) + " of " + amount(name, whole)
	return m
}
