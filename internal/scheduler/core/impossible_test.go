package core

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// impossibleCase is a group of queue q in a world of two nodes of 4 CPUs, of the classes s and t and the domains a and
// b. A case without want and reason is scheduled.
type impossibleCase struct {
	quota  int64
	set    func(w *world) *Group
	want   []string // parts of the message; empty if the group is not Impossible
	nodes  bool
	reason Reason
}

var impossibleCases = map[string]impossibleCase{
	"more than the whole quota": {quota: 1000, set: func(w *world) *Group { return w.group("g", "q", 2, 600) },
		want: []string{"quota of queue q", "1200m cpu needed, 1 in the quota, 200m short", "raise the quota to 1200m cpu"}},
	"a pod more than the whole quota": {quota: 2, set: func(w *world) *Group { return w.group("g", "q", 1, 3) }, want: []string{"quota"}},
	"no more than the quota":          {quota: 6, set: func(w *world) *Group { return w.group("g", "q", 2, 3) }},
	"used quota": {quota: 6, reason: QuotaExceeded, set: func(w *world) *Group {
		w.run(w.group("runs", "q", 1, 3), "n00")
		return w.group("g", "q", 2, 3)
	}},
	"a pod larger than any node": {nodes: true, set: func(w *world) *Group { return w.group("g", "q", 1, 5) },
		want: []string{"pod g-worker-0 is too large", "closest has 4m of 5m cpu"}},
	"one pod of two larger than any node": {nodes: true, set: func(w *world) *Group {
		g := w.group("g", "q", 1, 1)
		w.pod(g, "worker", 5)
		g.Min = 2
		return g
	}, want: []string{"pod g-worker-1 is too large"}},
	"a larger pod beyond the minimum": {reason: NoRoom, nodes: true, set: func(w *world) *Group {
		g := w.group("g", "q", 1, 1)
		w.pod(g, "worker", 5)
		return g
	}},
	"more pods than fit on empty nodes": {nodes: true, set: func(w *world) *Group { return w.group("g", "q", 3, 3) },
		want: []string{"only 2 of the 3 pods that must start together fit", "each requests 3m cpu: 1 short", "add nodes for 1 pod more"}},
	"of different sizes, more than all nodes have": {nodes: true, set: func(w *world) *Group {
		g := w.group("g", "q", 2, 3)
		w.pod(g, "worker", 2)
		w.pod(g, "worker", 1)
		g.Min = 4
		return g
	}, want: []string{"request 9m cpu and all nodes that they may use have 8m, 1m short"}},
	"of different sizes, which fit": {set: func(w *world) *Group {
		g := w.group("g", "q", 2, 3)
		w.pod(g, "worker", 1)
		g.Min = 3
		return g
	}},
	"a label that no node carries": {nodes: true, set: func(w *world) *Group { return twoShapes(w, "u/3") }, want: []string{"no node is of class u"}},
	"a label that a node carries":  {set: func(w *world) *Group { return twoShapes(w, "t/3") }},
	"nodes that are full": {reason: NoRoom, nodes: true, set: func(w *world) *Group {
		w.run(w.group("runs", "other", 1, 3), "n00")
		return w.group("g", "q", 2, 3)
	}},
	"in no domain": {nodes: true, set: func(w *world) *Group {
		g := w.group("g", "q", 2, 3)
		g.Topology = Required
		return g
	}, want: []string{"none of the 2 topology domains takes all of it"}},
	"in one domain": {set: func(w *world) *Group {
		g := w.group("g", "q", 2, 2)
		g.Topology = Required
		return g
	}},
	"members that have finished": {set: func(w *world) *Group {
		g := w.group("g", "q", 2, 3)
		g.Min, g.Finished = 3, map[string]int{"worker": 1}
		return g
	}},
	"a resource from elsewhere": {reason: NoRoom, nodes: true, set: func(w *world) *Group {
		g := w.group("g", "q", 1, 1)
		g.Pods[0].Requests["claimed"] = 1
		w.cluster.Uncounted = func(name string) bool { return name == "claimed" }
		return g
	}},
	"a resource that no node has": {nodes: true, set: func(w *world) *Group {
		g := w.group("g", "q", 1, 1)
		g.Pods[0].Requests["gpu"] = 1
		return g
	}, want: []string{"0 of 1 gpu"}},
	"quota that is used, and a pod too large": {quota: 6, set: func(w *world) *Group {
		w.run(w.group("runs", "q", 1, 3), "n00")
		return w.group("g", "q", 1, 5)
	}, want: []string{"too large"}},
}

// twoShapes adds a group of two pods. The second pod has the given shape.
func twoShapes(w *world, shape string) *Group {
	g := w.group("g", "q", 0, 0)
	g.Min = 2
	for i := range 2 {
		p := w.pod(g, "worker", 3)
		if p.Shape = "any/3"; i == 1 {
			p.Shape = shape
		}
	}
	return g
}

// TestImpossibleGroupsNameTheirObstacle verifies the messages for groups that cannot start even when nothing else runs,
// that all other groups get another reason, and for which groups more nodes would help.
func TestImpossibleGroupsNameTheirObstacle(t *testing.T) {
	for name, test := range impossibleCases {
		t.Run(name, func(t *testing.T) {
			w := newWorld().addNode(4, "s", "a").addNode(4, "t", "b")
			w.queue("q", test.quota, 0)
			w.queue("other", 0, 0)
			g := test.set(w)
			d := w.round(t)[g.Name]
			want := test.reason
			if len(test.want) > 0 {
				want = Impossible
			} else if want == "" {
				want = Scheduled
			}
			if d.Reason != want || d.LacksNodes != test.nodes {
				t.Errorf("%s (lacks nodes: %v): %s; want %s (%v)", d.Reason, d.LacksNodes, d.Message, want, test.nodes)
			}
			for _, part := range test.want {
				if !strings.Contains(d.Message, part) {
					t.Errorf("message %q lacks %q", d.Message, part)
				}
			}
		})
	}
}

// TestImpossibleEndsWithItsCause verifies that an impossible group starts in the first round after its obstacle is
// removed.
func TestImpossibleEndsWithItsCause(t *testing.T) {
	w := newWorld().addNode(4, "s", "")
	w.queue("q", 3, 0)
	w.group("g", "q", 2, 2)
	if d := w.round(t)["g"]; d.Reason != Impossible {
		t.Fatalf("%s: %s", d.Reason, d.Message)
	}
	w.cluster.Queues["q"].Quota["cpu"] = 4
	if d := w.round(t)["g"]; d.Reason != Scheduled {
		t.Fatalf("%s: %s", d.Reason, d.Message)
	}
}

// TestGroupsThatFitAreNeverImpossible verifies the verdict against a search of all placements of small random groups on
// small empty clusters. A group that fits must not be Impossible. If all pods of a group are alike and the group does
// not fit, it must be Impossible.
func TestGroupsThatFitAreNeverImpossible(t *testing.T) {
	const worlds = 20000
	found, missed := 0, 0
	for seed := uint64(1); seed <= worlds; seed++ {
		w, g, alike := smallWorld(random(seed))
		r := &round{Cluster: &w.cluster, used: map[string]Resources{}}
		n := r.lacks(g)
		never := r.impossible(g, n, g.Pods)
		fits := (&search{w: w, group: g, quota: w.cluster.Queues["q"].Quota, used: map[*node]Resources{}, sum: Resources{}}).any(g.Pods, n)
		switch {
		case never != nil && fits:
			t.Fatalf("seed %d: a placement exists, and the verdict is: %s", seed, never.message)
		case never != nil:
			found++
		case !fits && alike:
			t.Fatalf("seed %d: no placement of like pods exists, and there is no verdict", seed)
		case !fits:
			missed++
		}
	}
	t.Logf("%d of %d groups are impossible; %d others do not fit", found, worlds, missed)
	if found < worlds/10 || missed > found/4 {
		t.Error("too few groups are impossible to prove anything")
	}
}

func smallWorld(rand *rand.Rand) (w *world, g *Group, alike bool) {
	w = newWorld()
	for range rand.IntN(4) {
		w.addNode(int64(rand.IntN(6)), []string{"s", "t"}[rand.IntN(2)], []string{"a", "b"}[rand.IntN(2)])
		last := w.nodes[len(w.nodes)-1]
		if rand.IntN(2) == 0 {
			last.size["gpu"] = int64(rand.IntN(4))
		}
		if rand.IntN(3) == 0 {
			last.size["pods"] = int64(rand.IntN(3))
		}
	}
	w.queue("q", int64(max(0, rand.IntN(20)-5)), 0)
	g = w.group("g", "q", 0, 0)
	alike = rand.IntN(3) == 0
	n := 1 + rand.IntN(4)
	g.Min = 1 + rand.IntN(n)
	class, cpu, gpu := "any", int64(rand.IntN(5)), int64(0)
	for i := range n {
		if !alike || i == 0 {
			class, cpu, gpu = []string{"any", "s", "t"}[rand.IntN(3)], int64(rand.IntN(5)), int64(max(0, rand.IntN(5)-2))
		}
		p := w.pod(g, []string{"a", "b"}[rand.IntN(2)], cpu)
		p.Requests["gpu"], p.Shape = gpu, fmt.Sprintf("%s/%d", class, cpu)
	}
	if rand.IntN(3) == 0 {
		roles := map[string]int{}
		for _, p := range g.Pods {
			roles[p.Role]++
		}
		g.Roles["a"] = rand.IntN(roles["a"] + 1)
		g.Min = max(g.Min, g.Roles["a"])
	}
	if rand.IntN(4) == 0 {
		g.Topology = Required
	}
	return w, g, alike
}

// search tries all placements of a group on empty nodes.
type search struct {
	w     *world
	group *Group
	quota Resources
	used  map[*node]Resources
	sum   Resources
	// domain is the domain of the first pod if the group must be in one domain.
	domain string
	placed int
}

func (s *search) any(pods []*Pod, left need) bool {
	if left.total == 0 {
		return true
	}
	if len(pods) == 0 {
		return false
	}
	p := pods[0]
	if left.accepts(p.Role) {
		for _, n := range s.w.nodes {
			if s.accepts(n, p) && s.with(n, p, func() bool { after := left.clone(); after.subtract(p.Role); return s.any(pods[1:], after) }) {
				return true
			}
		}
	}
	return s.any(pods[1:], left)
}

func (s *search) accepts(n *node, p *Pod) bool {
	if class, _, _ := strings.Cut(p.Shape, "/"); class != "any" && class != n.class {
		return false
	}
	if s.group.Topology == Required && s.placed > 0 && n.domain != s.domain {
		return false
	}
	for name, v := range p.Requests {
		if v > 0 && s.used[n][name]+v > n.size[name] {
			return false
		}
		if limit, ok := s.quota[name]; ok && v > 0 && s.sum[name]+v > limit {
			return false
		}
	}
	most, ok := n.size["pods"]
	return !ok || s.used[n]["pods"] < most
}

// with calls do while a pod is placed on a node.
func (s *search) with(n *node, p *Pod, do func() bool) bool {
	before, domain := s.used[n], s.domain
	s.used[n] = Resources{"pods": 1}
	s.used[n].add(before, 1)
	s.used[n].add(p.Requests, 1)
	s.sum.add(p.Requests, 1)
	s.domain, s.placed = n.domain, s.placed+1
	ok := do()
	s.used[n], s.domain, s.placed = before, domain, s.placed-1
	s.sum.add(p.Requests, -1)
	return ok
}
