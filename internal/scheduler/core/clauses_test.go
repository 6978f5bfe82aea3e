package core

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestGangIsAllOrNothing(t *testing.T) {
	w := newWorld().addNode(4, "", "").addNode(4, "", "")
	w.queue("a", 0, 0)
	big, small := w.group("big", "a", 3, 3), w.group("small", "a", 1, 4)
	d := w.round(t)
	if bound(big) != 0 || d["big"].Reason != Impossible || !strings.Contains(d["big"].Message, "2 of the 3 pods") {
		t.Errorf("the gang that does not fit: %d bound, %s: %s", bound(big), d["big"].Reason, d["big"].Message)
	}
	if bound(small) != 1 {
		t.Error("a group that does not fit blocks another one")
	}
}

func TestRolesHaveMinimums(t *testing.T) {
	tests := map[string]struct {
		ps, workers int
		want        Reason
		bound       int
	}{
		"all there":                         {1, 3, Scheduled, 4},
		"no parameter server":               {0, 4, NotEnoughMembers, 0},
		"beyond the minimum, one by one":    {1, 5, NoRoom, 5},
		"the parameter server is not spent": {2, 2, NotEnoughMembers, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld().addNode(5, "", "")
			w.queue("a", 0, 0)
			g := w.group("g", "a", 0, 0)
			g.Min, g.Roles = 4, map[string]int{"ps": 1, "worker": 3}
			for range test.ps {
				w.pod(g, "ps", 1)
			}
			for range test.workers {
				w.pod(g, "worker", 1)
			}
			d := w.round(t)["g"]
			if d.Reason != test.want || bound(g) != test.bound {
				t.Errorf("%d bound, %s: %s", bound(g), d.Reason, d.Message)
			}
			if d.Extra != (test.bound > 4) {
				t.Errorf("Extra is %v", d.Extra)
			}
		})
	}
}

func TestFinishedMembersCount(t *testing.T) {
	w := newWorld().addNode(4, "", "")
	w.queue("a", 0, 0)
	g := w.group("g", "a", 1, 1)
	g.Min, g.Roles, g.Finished = 3, map[string]int{"worker": 3}, map[string]int{"worker": 2}
	if w.round(t); bound(g) != 1 {
		t.Error("the worker waits for finished members")
	}
}

func TestShortGangGoesFirst(t *testing.T) {
	w := newWorld().addNode(4, "", "")
	w.queue("high", 0, 9)
	w.queue("low", 0, 0)
	first := w.group("first", "high", 1, 2)
	short := w.group("short", "low", 2, 2)
	w.run(short, "n00", short.Pods[0])
	w.round(t)
	if bound(short) != 2 || bound(first) != 0 {
		t.Errorf("bound: short %d, first %d", bound(short), bound(first))
	}
}

// TestDominantShareDecidesTheOrder verifies the example of the specification: queue A uses cpu 3/6 and memory 5/8, and
// queue B uses cpu 3/8 and memory 1/2. The dominant share of B is smaller, so B's group starts first.
func TestDominantShareDecidesTheOrder(t *testing.T) {
	w := newWorld().addNode(7, "", "")
	w.nodes[0].size["memory"] = 100
	a, b := w.queue("a", 0, 0), w.queue("b", 0, 0)
	a.Quota, b.Quota = Resources{"cpu": 6, "memory": 8}, Resources{"cpu": 8, "memory": 2}
	ga, gb := w.group("ra", "a", 1, 3), w.group("rb", "b", 1, 3)
	ga.Pods[0].Requests["memory"], gb.Pods[0].Requests["memory"] = 5, 1
	w.run(ga, "n00")
	w.run(gb, "n00")
	older, younger := w.group("older", "a", 1, 1), w.group("younger", "b", 1, 1)
	w.round(t)
	if bound(older) != 0 || bound(younger) != 1 {
		t.Error("A starts before B")
	}
}

func TestGroupsRunInOrder(t *testing.T) {
	tests := map[string]struct {
		set  func(w *world, first, second *Group)
		want string
	}{
		"age":                       {func(*world, *Group, *Group) {}, "first"},
		"group priority before age": {func(_ *world, _, second *Group) { second.Priority = 1 }, "second"},
		"share before group priority": {func(w *world, first, second *Group) {
			first.Queue, first.Priority = "b", 5
			w.run(w.group("runs", "b", 1, 1), "n00")
		}, "second"},
		"queue priority before share": {func(w *world, first, second *Group) {
			first.Queue = "b"
			w.cluster.Queues["b"].Priority = 1
			w.run(w.group("runs", "b", 1, 1), "n00")
		}, "first"},
		"shares without a quota are of what the queue's nodes have": {func(w *world, first, second *Group) {
			second.Queue = "b"
			w.cluster.Queues["b"].Capacity = Resources{"cpu": 100}
			w.run(w.group("ra", "a", 1, 1), "n00")
			w.run(w.group("rb", "b", 1, 1), "n00")
		}, "second"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld().addNode(6, "", "")
			w.queue("a", 0, 0)
			w.queue("b", 0, 0)
			first, second := w.group("first", "a", 1, 4), w.group("second", "a", 1, 4)
			test.set(w, first, second)
			w.round(t)
			if got := map[bool]string{true: "first", false: "second"}[bound(first) == 1]; got != test.want || bound(first)+bound(second) != 1 {
				t.Errorf("%s runs", got)
			}
		})
	}
}

func TestGroupsStayWithinQuota(t *testing.T) {
	w := newWorld().addNode(100, "", "")
	w.queue("a", 10, 0)
	w.run(w.group("runs", "a", 1, 4), "n00")
	gang, fits := w.group("gang", "a", 2, 4), w.group("fits", "a", 1, 6)
	d := w.round(t)
	if bound(gang) != 0 || bound(fits) != 1 {
		t.Errorf("bound: gang %d, fits %d", bound(gang), bound(fits))
	}
	if d["gang"].Reason != QuotaExceeded {
		t.Errorf("%s: %s", d["gang"].Reason, d["gang"].Message)
	}
}

// TestReservationStartsALargeGroup verifies that a large group gets room by its reservation while small groups, each of
// which runs for four minutes, keep the cluster full.
func TestReservationStartsALargeGroup(t *testing.T) {
	tests := map[string]struct{ size, quota int64 }{"room": {4, 0}, "quota": {100, 4}}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld().addNode(test.size, "", "")
			w.cluster.ReserveAfter = 10 * time.Minute
			w.queue("a", test.quota, 0)
			big := w.group("big", "a", 1, 4)
			big.Since = w.cluster.Now
			for range 4 {
				w.run(w.group("small", "a", 1, 1), "n00")
			}
			var d *Decision
			minutes := 0
			for ; bound(big) == 0 && minutes < 20; minutes++ {
				for _, g := range w.cluster.Groups {
					if g != big && bound(g) == 1 {
						w.end(g.Pods...)
						break
					}
				}
				small := w.group(fmt.Sprint("small", minutes), "a", 1, 1)
				d = w.round(t)["big"]
				if before := minutes < 10; before != (bound(small) == 1) {
					t.Errorf("minute %d: the new small group runs: %v", minutes, bound(small) == 1)
				}
				if waits := minutes >= 10 && minutes <= 12; waits && d.Reason != Reserved {
					t.Errorf("minute %d: %s: %s", minutes, d.Reason, d.Message)
				}
				w.cluster.Now = w.cluster.Now.Add(time.Minute)
			}
			if minutes != 14 {
				t.Errorf("the big group runs after %d minutes, want 14: %s", minutes, d.Message)
			}
		})
	}
}

func TestClosedAndMissingQueuesStartNoGroup(t *testing.T) {
	w := newWorld().addNode(10, "", "")
	w.queue("closed", 0, 0).Closed = true
	fresh, lost, half := w.group("fresh", "closed", 1, 1), w.group("lost", "nowhere", 1, 1), w.group("half", "closed", 2, 1)
	w.run(half, "n00", half.Pods[0])
	half.Complete = true
	d := w.round(t)
	if bound(fresh) != 0 || d["fresh"].Reason != QueueClosed {
		t.Errorf("fresh: %+v", d["fresh"])
	}
	if bound(lost) != 0 || d["lost"].Reason != QueueNotFound || d["lost"].Message != "queue nowhere does not exist" {
		t.Errorf("lost: %+v", d["lost"])
	}
	if bound(half) != 2 {
		t.Error("a running gang gets no replacement in a closed queue")
	}
}

func TestGangsFollowTheirTopologyPolicy(t *testing.T) {
	tests := map[string]struct {
		policy Topology
		n      int
		want   int // domains; 0: not bound
	}{
		"required, fits in one":            {Required, 4, 1},
		"required, does not fit in one":    {Required, 5, 0},
		"best effort, fits in one":         {BestEffort, 4, 1},
		"best effort, in as few as it can": {BestEffort, 6, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for _, domain := range []string{"a", "b", "c", "b", "c", "b"} { // a has 1 node, b 3, c 2
				w.addNode(1, "", domain)
			}
			w.addNode(1, "", "b")
			w.queue("q", 0, 0)
			g := w.group("g", "q", test.n, 1)
			g.Topology = test.policy
			w.round(t)
			domains := map[string]bool{}
			for _, p := range g.Pods {
				if p.Node != "" {
					domains[w.node(p.Node).domain] = true
				}
			}
			if len(domains) != test.want || test.want > 0 && bound(g) != test.n {
				t.Errorf("%d pods in domains %v", bound(g), domains)
			}
		})
	}
}

func TestStrandedGangIsEvicted(t *testing.T) {
	for _, complete := range []bool{false, true} {
		w := newWorld().addNode(4, "", "")
		w.queue("a", 0, 0)
		w.cluster.Grace = time.Minute
		g := w.group("g", "a", 3, 2)
		w.run(g, "n00", g.Pods[:2]...)
		g.Complete, g.Partial = complete, w.cluster.Now
		if d := w.round(t)["g"]; len(d.Evict) != 0 {
			t.Errorf("evicted at once: %v", names(d.Evict))
		}
		w.cluster.Now = w.cluster.Now.Add(time.Minute)
		if d := w.round(t)["g"]; (len(d.Evict) == 2) == complete {
			t.Errorf("complete %v: evicted after the grace period: %v", complete, names(d.Evict))
		}
	}
}
