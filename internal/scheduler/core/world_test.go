package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster of plain nodes. A pod of shape "s/CPUS" fits only nodes of class "s", and a pod of shape
// "any/CPUS" fits all nodes. A pod without a shape does not fit nodes that have a pod of its role.
type world struct {
	cluster Cluster
	nodes   []*node
	next    int // the node at which the search begins, as in a scheduler
	// unchecked disables the check that a round does not change its input.
	unchecked bool
}

type node struct {
	name, class, domain string
	size, used          Resources
	pods                map[*Pod]bool
}

func newWorld() *world {
	w := &world{}
	w.cluster = Cluster{Queues: map[string]*Queue{}, Now: epoch.Add(time.Hour), Nodes: w, Domain: func(name string) string { return w.node(name).domain }}
	known := map[string]*Sites{}
	w.cluster.Sites = func(_ *Group, p *Pod) *Sites {
		class, _, _ := strings.Cut(p.Shape, "/")
		key := fmt.Sprint(class, len(w.nodes))
		if known[key] == nil {
			known[key] = w.sites(class)
		}
		return known[key]
	}
	return w
}

// sites returns the nodes of a class.
func (w *world) sites(class string) *Sites {
	var all []Site
	for _, n := range w.nodes {
		if class == "any" || class == "" || class == n.class {
			all = append(all, Site{Room: n.size, Domain: n.domain, Count: 1})
		}
	}
	if len(all) == len(w.nodes) {
		return NewSites(all, "")
	}
	return NewSites(all, "no node is of class "+class)
}

func (w *world) node(name string) *node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name })]
}

func (w *world) addNode(cpu int64, class, domain string) *world {
	w.nodes = append(w.nodes, &node{name: fmt.Sprintf("n%02d", len(w.nodes)), class: class, domain: domain,
		size: Resources{"cpu": cpu}, used: Resources{}, pods: map[*Pod]bool{}})
	if domain != "" && !slices.Contains(w.cluster.Domains, domain) {
		w.cluster.Domains = append(w.cluster.Domains, domain)
	}
	return w
}

func (w *world) queue(name string, quota int64, priority int32) *Queue {
	q := &Queue{Name: name, Priority: priority, Preemptible: true, Capacity: Resources{}}
	if quota > 0 {
		q.Quota = Resources{"cpu": quota}
	}
	for _, n := range w.nodes {
		q.Capacity.add(n.size, 1)
	}
	w.cluster.Queues[name] = q
	return q
}

// group adds a group of n waiting pods that must all start together.
func (w *world) group(name, queue string, n int, cpu int64) *Group {
	at := epoch.Add(time.Duration(len(w.cluster.Groups)) * time.Second)
	g := &Group{Name: name, Queue: queue, Min: n, Created: at, Roles: map[string]int{}, Finished: map[string]int{}}
	for range n {
		w.pod(g, "worker", cpu)
	}
	w.cluster.Groups = append(w.cluster.Groups, g)
	return g
}

func (w *world) pod(g *Group, role string, cpu int64) *Pod {
	p := &Pod{Name: fmt.Sprintf("%s-%s-%d", g.Name, role, len(g.Pods)), Role: role, Shape: fmt.Sprint("any/", cpu), Created: g.Created, Requests: Resources{"cpu": cpu}}
	p.UID = p.Name
	g.Pods = append(g.Pods, p)
	return p
}

// run binds the given pods of a group to a node. Without pods, it binds all of them and marks the group as complete.
func (w *world) run(g *Group, node string, pods ...*Pod) *Group {
	if len(pods) == 0 {
		pods = g.Pods
		g.Complete = true
	}
	for _, p := range pods {
		p.Node = node
		w.Put(p, node)
	}
	return g
}

func (w *world) fits(p *Pod, n *node) bool {
	for name, v := range p.Requests {
		if n.used[name]+v > n.size[name] {
			return false
		}
	}
	if p.Shape == "" {
		for o := range n.pods {
			if o.Role == p.Role {
				return false
			}
		}
		return true
	}
	class, _, _ := strings.Cut(p.Shape, "/")
	return class == "any" || class == n.class
}

func (w *world) Place(p *Pod, among func(string) bool) (string, func() string) {
	for i := range w.nodes {
		n := w.nodes[(w.next+i)%len(w.nodes)]
		if (among == nil || among(n.name)) && w.fits(p, n) {
			w.next = (w.next + i) % len(w.nodes)
			w.Put(p, n.name)
			return n.name, nil
		}
	}
	return "", func() string { return fmt.Sprintf("0 of %d nodes fit", len(w.nodes)) }
}

func (w *world) Put(p *Pod, name string) {
	n := w.node(name)
	if n.pods[p] {
		panic(p.Name + " is put on " + name + " twice")
	}
	n.pods[p] = true
	n.used.add(p.Requests, 1)
}

func (w *world) Take(p *Pod, name string) {
	n := w.node(name)
	if !n.pods[p] {
		panic(p.Name + " is removed from " + name + " but is not bound there")
	}
	delete(n.pods, p)
	n.used.add(p.Requests, -1)
}

// round runs a round, binds the pods that it decides to bind and keeps its reservations. Evicted pods are marked as
// Ending and keep their room until the test removes them.
func (w *world) round(t testing.TB) map[string]*Decision {
	t.Helper()
	for _, g := range w.cluster.Groups { // Round places the pods of reservations itself
		if g.Reservation != nil {
			for _, at := range g.Reservation.Placements {
				if w.node(at.Node).pods[at.Pod] {
					w.Take(at.Pod, at.Node)
				}
			}
		}
	}
	run := func() Result { return roundOnly(t, &w.cluster) }
	if w.unchecked {
		run = func() Result { return Round(&w.cluster) }
	}
	all := map[string]*Decision{}
	for _, d := range run().Decisions {
		all[d.Group.Name] = d
		d.Group.Reservation = d.Reservation
		for _, gang := range d.Gangs {
			for _, at := range gang {
				at.Pod.Node = at.Node
			}
		}
		if len(d.Gangs) > 0 {
			d.Group.Complete = true
		}
	}
	for _, d := range all {
		for _, p := range d.Evict {
			p.Ending = true
		}
	}
	return all
}

// end removes pods, as if they were deleted or had finished.
func (w *world) end(pods ...*Pod) {
	for _, p := range pods {
		w.Take(p, p.Node)
		p.Gone = true
		for _, g := range w.cluster.Groups {
			g.Pods = slices.DeleteFunc(g.Pods, func(o *Pod) bool { return o == p })
		}
	}
}

func bound(g *Group) int {
	n := 0
	for _, p := range g.Pods {
		if p.Node != "" {
			n++
		}
	}
	return n
}

func names(pods []*Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return all
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }
