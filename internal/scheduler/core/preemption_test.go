package core

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPreemptionExampleOfTheSpecification verifies the example of the specification: D2 preempts A3, the youngest group
// of the lower queue with the largest share. B2 has no lower queue to preempt, and the quota of its queue refuses C2.
func TestPreemptionExampleOfTheSpecification(t *testing.T) {
	w := newWorld().addNode(300_000, "", "")
	for name, q := range map[string][2]int64{"A": {200_000, 1}, "B": {100_000, 1}, "C": {50_000, 2}, "D": {200_000, 2}} {
		w.queue(name, q[0], int32(q[1]))
	}
	for _, name := range []string{"A1", "A2", "A3", "B1", "C1", "D1"} {
		w.run(w.group(name, name[:1], 1, 50_000), "n00")
	}
	b2, c2, d2 := w.group("B2", "B", 1, 50_000), w.group("C2", "C", 1, 50_000), w.group("D2", "D", 1, 50_000)
	d := w.round(t)
	if d["B2"].Reason != NoRoom || len(d["B2"].Evict) > 0 {
		t.Errorf("B2: %+v", d["B2"])
	}
	if want := "the quota of queue C does not allow it: 50 cpu needed, 0 of 50 left"; d["C2"].Message != want || len(d["C2"].Evict) > 0 {
		t.Errorf("C2: %q, want %q", d["C2"].Message, want)
	}
	if diff := cmp.Diff([]string{"A3-worker-0"}, names(d["D2"].Evict)); diff != "" || d["D2"].Reason != Preempting {
		t.Errorf("D2 evicts: %s", diff)
	}
	w.round(t)
	if bound(b2)+bound(c2)+bound(d2) != 0 {
		t.Error("a pod was bound before its room is free")
	}
	w.end(d["D2"].Evict...)
	w.round(t)
	if bound(b2) != 0 || bound(c2) != 0 || bound(d2) != 1 {
		t.Errorf("bound after the end of A3: B2 %d, C2 %d, D2 %d", bound(b2), bound(c2), bound(d2))
	}
}

func TestPreemptionChoosesVictims(t *testing.T) {
	tests := map[string]struct {
		set  func(w *world) // the cluster has 12 CPUs on three nodes
		want []string
	}{
		"lowest queue first": {func(w *world) {
			w.run(w.group("mid", "mid", 1, 4), "n00")
			w.run(w.group("low", "low", 1, 4), "n01")
			w.run(w.group("other", "high", 1, 4), "n02")
			w.group("new", "high", 1, 4)
		}, []string{"low-worker-0"}},
		"then the lowest group": {func(w *world) {
			w.run(w.group("x", "low", 1, 4), "n00")
			w.run(w.group("y", "low", 1, 4), "n01").Priority = -1
			w.run(w.group("z", "low", 1, 4), "n02")
			w.group("new", "high", 1, 4)
		}, []string{"y-worker-0"}},
		"not a queue that may not be preempted": {func(w *world) {
			w.cluster.Queues["low"].Preemptible = false
			for i, name := range []string{"x", "y", "z"} {
				w.run(w.group(name, "low", 1, 4), w.nodes[i].name)
			}
			w.group("new", "high", 1, 4)
		}, nil},
		"a gang below its minimum is evicted as a whole": {func(w *world) {
			g := w.group("gang", "low", 3, 4)
			for i, p := range g.Pods {
				w.run(g, w.nodes[i].name, p)
			}
			w.group("new", "high", 1, 4)
		}, []string{"gang-worker-0", "gang-worker-1", "gang-worker-2"}},
		"pods beyond a gang's minimum are evicted first": {func(w *world) {
			g := w.group("gang", "low", 3, 4)
			for i, p := range g.Pods {
				w.run(g, w.nodes[i].name, p)
			}
			g.Min = 2
			w.group("new", "high", 1, 4)
		}, []string{"gang-worker-2"}},
		"no pod for a gang that would not fit": {func(w *world) {
			w.run(w.group("x", "low", 1, 4), "n00")
			w.run(w.group("y", "high", 1, 4), "n01")
			w.group("new", "high", 3, 4)
		}, nil},
		"no more than is needed": {func(w *world) {
			w.run(w.group("old", "low", 1, 4), "n00")
			w.run(w.group("half", "low", 1, 2), "n01")
			w.run(w.group("fixed", "high", 1, 2), "n01")
			w.run(w.group("other", "high", 1, 4), "n02")
			w.group("new", "high", 1, 4) // half is younger, but its eviction does not help
		}, []string{"old-worker-0"}},
		"no pod where pods are ending": {func(w *world) {
			w.run(w.group("x", "low", 1, 4), "n00")
			w.run(w.group("y", "mid", 1, 4), "n01").Pods[0].Ending = true
			w.run(w.group("z", "high", 1, 4), "n02")
			w.group("new", "high", 1, 4)
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld().addNode(4, "", "").addNode(4, "", "").addNode(4, "", "")
			w.queue("low", 0, 1)
			w.queue("mid", 0, 2)
			w.queue("high", 0, 3)
			test.set(w)
			d := w.round(t)["new"]
			if diff := cmp.Diff(test.want, names(d.Evict)); diff != "" {
				t.Errorf("%s: %s: evicted (-want +got):\n%s", d.Reason, d.Message, diff)
			}
		})
	}
}

// TestFailedEvictionIsRepeatedForWaitingGroup verifies that a group that relied on another group's eviction evicts the
// pod itself if that eviction failed and the other group no longer exists.
func TestFailedEvictionIsRepeatedForWaitingGroup(t *testing.T) {
	w := newWorld().addNode(4, "", "").addNode(4, "", "")
	w.queue("low", 0, 0)
	w.queue("high", 0, 1)
	low := w.group("low", "low", 2, 4)
	w.run(w.run(low, "n00", low.Pods[0]), "n01", low.Pods[1])
	low.Min, low.Complete = 1, true
	victim := low.Pods[1]
	first, second := w.group("first", "high", 1, 2), w.group("second", "high", 1, 2)
	d := w.round(t)
	if len(d["first"].Evict) != 1 || len(d["second"].Evict) != 0 || second.Reservation == nil {
		t.Fatalf("first evicts %v, second %v, which waits: %+v", names(d["first"].Evict), names(d["second"].Evict), second.Reservation)
	}
	victim.Ending = false // the eviction has failed
	if d = w.round(t); len(d["first"].Evict) != 1 || len(d["second"].Evict) != 0 {
		t.Errorf("again, first evicts %v, second %v", names(d["first"].Evict), names(d["second"].Evict))
	}
	victim.Ending = false
	w.Take(first.Pods[0], victim.Node)
	w.cluster.Groups = slices.DeleteFunc(w.cluster.Groups, func(g *Group) bool { return g == first })
	if d = w.round(t); len(d["second"].Evict) != 1 {
		t.Errorf("alone, second evicts %v: %s: %s", names(d["second"].Evict), d["second"].Reason, d["second"].Message)
	}
}

func TestFreedRoomIsKept(t *testing.T) {
	w := newWorld().addNode(4, "", "")
	w.queue("low", 0, 0)
	w.queue("high", 0, 1)
	victim := w.run(w.group("victim", "low", 1, 4), "n00")
	high := w.group("high", "high", 1, 4)
	d := w.round(t)
	thief := w.group("thief", "high", 1, 1)
	thief.Priority = 100
	w.end(victim.Pods...)
	w.round(t)
	if d["high"].Reason != Preempting || bound(high) != 1 || bound(thief) != 0 {
		t.Errorf("bound: the preemptor %d, another one %d", bound(high), bound(thief))
	}
}
