package view

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/observed"
)

// Share is the part of a resource of a node that one owner uses or, in a meter with cells, one pod of an owner.
type Share struct {
	// X and W are the start and the width in percent of the resource.
	X, W  float64
	Title string
	// Colour is the number of the owner's colour.
	Colour int
}

// Meter is a resource of a node with the shares of its users.
type Meter struct {
	Name, Text string
	Shares     []Share
	// Cells is the number of units that are drawn individually; 0 if the meter is drawn as a whole.
	Cells int
}

// NodeTile shows one node on the page of nodes.
type NodeTile struct {
	ID, Name string
	// State is "ready" or "not ready", followed by ", cordoned" if the node is cordoned.
	State  string
	Tone   Tone
	Meters []Meter
	Pods   int
	// Href is the path of the page that lists the users of the node or, if this page lists them, of the page without
	// the list.
	Href string
	// Users are the jobs on the node; nil unless the page lists them.
	Users []NodeUser
}

// NodeUser is a job on a node, or the pods there that belong to no job. Pods with different queues or users have
// separate entries.
type NodeUser struct {
	Name, Href string
	// Queue and User are empty if the job has none or if they were not recorded.
	Queue, User string
	// Requests is what the pods request of the resources that the page shows, as text.
	Requests string
	Pods     int
}

// Owner is an entry of the legend.
type Owner struct {
	Name, Href string
	Colour     int
	// Pods is the number of the owner's pods on nodes.
	Pods int
}

// NodesPage shows which owners use the nodes.
type NodesPage struct {
	// By selects the owners that determine the colours: "job", "queue" or "user".
	By     string
	Views  []Link
	Nodes  []NodeTile
	Owners []Owner
	// MoreOwners is the number of owners that are not in the legend. Repeats is true if several owners with a page
	// share a colour.
	MoreOwners int
	Repeats    bool
	Hidden     []Hidden
}

// NodesInput holds the objects from which the page of nodes is computed.
type NodesInput struct {
	Nodes []*corev1.Node
	// Pods are all pods that are bound to a node and have not ended.
	Pods []*corev1.Pod
	// Groups determine the queue and the user of their pods.
	Groups []*scheduling.PodGroup
	Hidden []Hidden
}

// colours is the number of colours of owners.
const colours = 10

// listedOwners is the largest number of owners in the legend.
const listedOwners = 30

// otherColour is the number of the colour of owners without a page, and of usage keys without a colour of their own.
const otherColour = -1

// maxCells is the largest number of units of a resource that are drawn individually.
const maxCells = 16

// owned holds the requests of a pod on a node, and the owner whose colour it gets.
type owned struct {
	observed.Demand
	owner string
}

// nodesPath returns the path of the page of nodes. by selects the owners that determine the colours, and listed is the
// node whose users the page lists; empty for none.
func nodesPath(by, listed string) string {
	v := url.Values{}
	if by != "job" {
		v.Set("by", by)
	}
	if listed != "" {
		v.Set("node", listed)
	}
	return strings.TrimSuffix("/nodes?"+v.Encode(), "?")
}

// Nodes returns the nodes, sorted by name, with the owners that use them, most pods first. by selects the owners that
// determine the colours: "queue", "user" or, by default, "job". listed is the node whose users the page lists as text.
// Lists for all nodes would make the page of a large cluster too large.
func Nodes(in *NodesInput, by, listed string) NodesPage {
	if by != "queue" && by != "user" {
		by = "job"
	}
	p := NodesPage{By: by, Hidden: in.Hidden}
	for _, one := range []string{"job", "queue", "user"} {
		p.Views = append(p.Views, Link{"by " + one, nodesPath(one, listed), by == one})
	}
	owners := map[string]*Owner{}
	on := map[string][]owned{}
	for _, d := range observed.Demands(in.Pods, in.Groups) {
		name, href := ownerOf(&d, by)
		o := owners[name]
		if o == nil {
			o = &Owner{Name: name, Href: href}
			owners[name] = o
		}
		o.Pods++
		on[d.Pod.Spec.NodeName] = append(on[d.Pod.Spec.NodeName], owned{d, name})
	}
	paint(owners)
	nodes := slices.Clone(in.Nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		t := tile(n, on[n.Name], owners)
		t.Href = nodesPath(by, n.Name) + "#" + t.ID
		if n.Name == listed {
			t.Href, t.Users = nodesPath(by, "")+"#"+t.ID, users(n, on[n.Name])
		}
		p.Nodes = append(p.Nodes, t)
	}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		p.Owners = append(p.Owners, *owners[name])
	}
	slices.SortStableFunc(p.Owners, func(a, b Owner) int { return cmp.Compare(b.Pods, a.Pods) })
	coloured := 0
	for i := range p.Owners {
		if p.Owners[i].Colour != otherColour {
			coloured++
		}
	}
	p.Repeats, p.MoreOwners = coloured > colours, max(0, len(p.Owners)-listedOwners)
	p.Owners = p.Owners[:min(len(p.Owners), listedOwners)]
	return p
}

// ownerOf returns the job, queue or user to which a pod belongs, and the path of the page about it. If there is none,
// name says so, and href is empty.
func ownerOf(d *observed.Demand, by string) (name, href string) {
	p := d.Pod
	switch by {
	case "queue":
		if d.Queue != "" {
			return d.Queue, "/queues#queue-" + d.Queue
		}
		return "no queue", ""
	case "user":
		if d.User != "" {
			return d.User, JobFilter{User: d.User}.Href()
		}
		return "not recorded", ""
	}
	job := p.Labels[batch.LabelJobName]
	if kind := KindOf(strings.ToLower(p.Labels[batch.LabelJobKind])); job != "" && kind != nil {
		return p.Namespace + "/" + job, JobPath(kind, p.Namespace, job)
	}
	return "other pods", ""
}

// paint assigns a colour to each owner: the colour that the hash of its name selects or, if this colour is taken, the
// next free colour. When all colours are taken, all become free again. Owners without a page have otherColour.
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

func tile(n *corev1.Node, pods []owned, owners map[string]*Owner) NodeTile {
	t := NodeTile{ID: "node-" + n.Name, Name: n.Name, State: "not ready", Tone: Bad, Pods: len(pods)}
	if observed.Ready(n) {
		t.State, t.Tone = "ready", Good
	}
	if n.Spec.Unschedulable {
		t.State, t.Tone = t.State+", cordoned", Wait
	}
	slices.SortFunc(pods, func(a, b owned) int {
		return cmp.Or(strings.Compare(a.owner, b.owner), strings.Compare(a.Pod.Name, b.Pod.Name))
	})
	for _, name := range metered(n) {
		t.Meters = append(t.Meters, meter(name, n, pods, owners))
	}
	return t
}

// users returns the users of a node, sorted by name, queue and user.
func users(n *corev1.Node, pods []owned) []NodeUser {
	counts, requests := map[NodeUser]int{}, map[NodeUser]corev1.ResourceList{}
	for i := range pods {
		d := &pods[i].Demand
		u := NodeUser{Queue: d.Queue, User: d.User}
		u.Name, u.Href = ownerOf(d, "job")
		if requests[u] == nil {
			requests[u] = corev1.ResourceList{}
		}
		add(requests[u], d.Requests)
		counts[u]++
	}
	var rows []NodeUser
	for u, count := range counts {
		var texts []string
		for _, name := range metered(n) {
			if q := requests[u][name]; !q.IsZero() {
				texts = append(texts, amount(name, q)+" "+string(name))
			}
		}
		u.Pods, u.Requests = count, cmp.Or(strings.Join(texts, ", "), "nothing")
		rows = append(rows, u)
	}
	slices.SortFunc(rows, func(a, b NodeUser) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Queue, b.Queue), strings.Compare(a.User, b.User))
	})
	return rows
}

// metered returns the names of the resources of a node that a page shows: extended resources first, then CPU and
// memory.
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

func meter(name corev1.ResourceName, n *corev1.Node, pods []owned, owners map[string]*Owner) Meter {
	whole := n.Status.Allocatable[name]
	m := Meter{Name: string(name)}
	if strings.Contains(m.Name, "/") && whole.Value() <= maxCells {
		m.Cells = int(whole.Value())
	}
	sum := corev1.ResourceList{}
	var part resource.Quantity // the amount of the last share
	for i := range pods {
		request, ok := pods[i].Requests[name]
		if !ok || request.IsZero() {
			continue
		}
		used := sum[name]
		x, owner := share(used, whole), pods[i].owner
		add(sum, corev1.ResourceList{name: request})
		used = sum[name]
		if w := min(100, share(used, whole)) - x; w > 0 {
			if k := len(m.Shares) - 1; k >= 0 && m.Shares[k].Colour == owners[owner].Colour && strings.HasPrefix(m.Shares[k].Title, owner+":") && m.Cells == 0 {
				part.Add(request)
				m.Shares[k].W, m.Shares[k].Title = round(m.Shares[k].W+w), fmt.Sprintf("%s: %s %s", owner, amount(name, part), name)
				continue
			}
			part = request.DeepCopy()
			m.Shares = append(m.Shares, Share{X: x, W: round(w), Colour: owners[owner].Colour, Title: fmt.Sprintf("%s: %s %s", owner, amount(name, part), name)})
		}
	}
	m.Text = amount(name, sum[name]) + " of " + amount(name, whole)
	return m
}
