package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/testing/kubescheduler"
)

// TestEqualRoundsDecideAlike verifies that planners that get the same events in different orders decide alike: which
// pods get which nodes in which order, which pods they evict, and for which groups they reserve room.
func TestEqualRoundsDecideAlike(t *testing.T) {
	for _, c := range []struct {
		name         string
		nodes        int
		reserveAfter time.Duration
		decisions    []string
	}{
		{"others are evicted", 12, 0, []string{"gets", "waits for"}},
		{"room is kept", 12, time.Minute, []string{"gets", "waits for"}},
		{"more nodes fit than are examined", 300, 0, []string{"gets"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := ""
			for seed := range uint64(20) {
				r := newRig(t, 0)
				r.clock, r.config.ReserveAfter = clocktesting.NewFakeClock(t0), c.reserveAfter
				events := r.events(c.nodes)
				rand.New(rand.NewPCG(seed, 0)).Shuffle(len(events), func(i, k int) { events[i], events[k] = events[k], events[i] })
				for _, feed := range events {
					feed()
				}
				r.plan()
				r.plan()
				if got := r.decided(); seed == 0 {
					want = got
				} else if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("the order of events %d leads to other decisions than the first one:\n%s", seed, diff)
				}
			}
			for _, decision := range c.decisions {
				if !strings.Contains(want, decision) {
					t.Errorf("the world needs too few decisions:\n%s", want)
				}
			}
		})
	}
}

// TestEarlierRoundsDoNotChangeDecisions verifies that a round depends only on its input: a planner that has planned
// another gang, which is gone, decides like a new planner. There are more nodes than a search examines.
func TestEarlierRoundsDoNotChangeDecisions(t *testing.T) {
	decide := func(before func(r *rig)) string {
		r := newRig(t, 300)
		r.clock = clocktesting.NewFakeClock(t0)
		r.queueSeen("q", 0)
		before(r)
		r.podGroupAt("g", "q", 4, 5)
		for i := range 4 {
			r.podAt(fmt.Sprintf("g-%d", i), "g", "1", "", 5)
		}
		r.plan()
		if len(r.ready) != 4 {
			t.Fatalf("%d of 4 pods have a node", len(r.ready))
		}
		return r.decided()
	}
	fresh := decide(func(*rig) {})
	later := decide(func(r *rig) {
		r.podGroupAt("earlier", "q", 4, 1)
		var pods []*corev1.Pod
		for i := range 4 {
			pods = append(pods, r.podAt(fmt.Sprintf("earlier-%d", i), "earlier", "2", "", 1))
		}
		r.plan()
		r.drop()
		for _, pod := range pods {
			r.remove(pod)
		}
		r.step(func(now time.Time) { r.index.podGroupGone(kubescheduler.PodGroup("earlier", "q", 4, 1), now) })
	})
	if diff := cmp.Diff(fresh, later); diff != "" {
		t.Errorf("a gang gets other nodes after an earlier round:\n%s", diff)
	}
}

// TestGroupsSpreadOverManyNodes verifies that different groups begin their searches at different nodes, so that they do
// not all get the first nodes of a large cluster.
func TestGroupsSpreadOverManyNodes(t *testing.T) {
	const nodes = 500
	r := newRig(t, nodes)
	r.queueSeen("q", 0)
	used := map[string]bool{}
	for i := range 20 {
		r.group(fmt.Sprintf("g%d", i), "q", 1, "1")
		r.plan()
		if len(r.ready) != i+1 {
			t.Fatalf("%d groups have a node, want %d", len(r.ready), i+1)
		}
		used[r.ready[i].Node] = true
	}
	var names []string // the order of a search that begins at the first node
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	slices.Sort(names)
	first := 0
	for _, name := range names[:nodes/5] {
		if used[name] {
			first++
		}
	}
	if first > 10 {
		t.Errorf("%d of 20 groups are on the first fifth of the nodes", first)
	}
}

// events returns the events of a world in which gangs of one queue partly fill the first nine nodes, and in which gangs
// of this and other queues wait.
func (r *rig) events(nodes int) []func() {
	var all []func()
	for i := range nodes {
		all = append(all, func() { r.node(fmt.Sprintf("n%d", i)) })
	}
	for i, name := range []string{"low", "high", "also"} {
		all = append(all, func() { r.queueSeen(name, int32(min(i, 1))) })
	}
	gang := func(name, queue string, age int64, pods int, cpu string, node func(i int) string) {
		all = append(all, func() { r.podGroupAt(name, queue, pods, age) })
		for i := range pods {
			all = append(all, func() { r.podAt(fmt.Sprintf("%s-%d", name, i), name, cpu, node(i), age) })
		}
	}
	waits := func(int) string { return "" }
	for i := range 6 {
		gang(fmt.Sprintf("runs%d", i), "low", int64(i/2), 3, "3", func(k int) string { return fmt.Sprintf("n%d", (3*i+k)%9) })
	}
	for i := range 4 {
		gang(fmt.Sprintf("small%d", i), []string{"low", "high"}[i%2], 10, 3, "1", waits)
		gang(fmt.Sprintf("large%d", i), []string{"high", "also"}[i%2], 10, 4, "6", waits)
	}
	return all
}

// decided returns all decisions of the rounds as text, with their times. It also verifies that the nodes have exactly
// the pods of the decisions.
func (r *rig) decided() string {
	var b strings.Builder
	for _, m := range r.ready {
		fmt.Fprintf(&b, "%s gets %s\n", m.object.Name, m.Node)
	}
	names := func(pods []*core.Pod) (all []string) {
		for _, p := range pods {
			all = append(all, p.Name)
		}
		return all
	}
	for _, name := range slices.Sorted(maps.Keys(r.index.groups)) {
		g := r.index.groups[name]
		fmt.Fprintf(&b, "%s: %+v; bound in part since %s; next report at %s\n", name, g.lastReported, g.Partial, g.reportAt)
		if h := g.Reservation; h != nil {
			fmt.Fprintf(&b, "%s, number %d, waits for %v\n", name, h.Order, names(h.Blockers))
			for _, at := range h.Placements {
				fmt.Fprintf(&b, "%s is to get %s\n", at.Pod.Name, at.Node)
			}
		}
	}
	fmt.Fprintln(&b, "evicted:", slices.Sorted(maps.Keys(r.wrote.evicted)))
	r.checkAssumed()
	return b.String()
}

// checkAssumed verifies that rounds have left exactly the pods of their decisions on the nodes.
func (r *rig) checkAssumed() {
	want, got := map[types.UID]string{}, map[types.UID]string{}
	for _, m := range r.ready {
		want[m.object.UID] = m.Node
	}
	for _, g := range r.index.groups {
		if h := g.Reservation; h != nil {
			for _, at := range h.Placements {
				want[types.UID(at.Pod.UID)] = at.Node
			}
		}
	}
	dump := r.sched.Cache.Dump()
	for node, info := range dump.Nodes {
		for _, pod := range info.Pods {
			if dump.AssumedPods.Has(string(pod.GetPod().UID)) {
				got[pod.GetPod().UID] = node
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("the nodes differ from the decisions:\n%s", diff)
	}
}

// TestBackOffEndsWithSuccess verifies that each consecutive failed plan makes its group wait longer, and that a plan
// that is carried out resets the delay.
func TestBackOffEndsWithSuccess(t *testing.T) {
	r := newRig(t, 1)
	r.queueSeen("q", 0)
	r.podGroup("g", "q", 2)
	g := r.index.groups["default/g"]
	pods := []*corev1.Pod{r.pod("g-0", "g", "1", ""), r.pod("g-1", "g", "1", "")}
	try := func() *attempt {
		t.Helper()
		g.backoff, g.changed = time.Time{}, true
		r.plan()
		m := r.index.pods[pods[0].UID]
		if len(r.ready) != 2 || m.attempt == nil {
			t.Fatalf("%d pods have a node", len(r.ready))
		}
		r.ready = nil
		return m.attempt
	}
	waits := func(failed *attempt) time.Duration {
		now := r.now()
		r.fail(failed, "a test", now)
		for _, pod := range pods {
			r.scheduler.Nodes.Forget(r.Context(), pod.UID)
			r.giveUp(&Assignment{Pod: pod, attempt: failed}, now)
		}
		return g.backoff.Sub(now)
	}
	for i, want := range []time.Duration{firstBackoff, 2 * firstBackoff, 4 * firstBackoff} {
		if got := waits(try()); got != want {
			t.Errorf("after %d failures it waits for %s, want %s", i+1, got, want)
		}
	}
	try()
	for i, pod := range pods {
		r.scheduler.Nodes.Forget(r.Context(), pod.UID)
		r.podSeen(kubescheduler.Bound(pod, "n0"), r.now())
		if whole := i == len(pods)-1; whole != (g.failures == 0) {
			t.Errorf("with %d of 2 pods bound %d failures count", i+1, g.failures)
		}
	}
	for i := range pods {
		r.podGone(kubescheduler.Bound(pods[i], "n0"), r.now())
		pods[i] = r.pod(fmt.Sprintf("again-%d", i), "g", "1", "")
	}
	if got := waits(try()); got != firstBackoff {
		t.Errorf("after a success and one failure it waits for %s, want %s", got, firstBackoff)
	}
}
