package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/scheduler/core"
)

// TestCachedSearchEqualsFreshSearch verifies that the cached state of nodes equals a fresh evaluation of all of them,
// while pods of a few shapes are placed and removed, and running pods are removed and restored.
func TestCachedSearchEqualsFreshSearch(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t, 12)
		waiting, running := r.crowd(random)
		r.must(r.nodes.begin())
		placed, gone := map[*core.Pod]string{}, map[*core.Pod]bool{}
		for step := range 200 {
			if p := running[random.IntN(len(running))]; random.IntN(3) == 0 {
				if gone[p] {
					r.at.Put(p, p.Node)
				} else {
					r.at.Take(p, p.Node)
				}
				gone[p] = !gone[p]
				continue
			}
			p := waiting[random.IntN(len(waiting))]
			if at := placed[p]; at != "" {
				r.at.Take(p, at)
				placed[p] = ""
				continue
			}
			if placed[p] = r.placeBest(p); t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// TestPodThatEndsDuringAPlanIsNotRestored verifies that a pod that ends while a plan has removed it is not restored
// with the others.
func TestPodThatEndsDuringAPlanIsNotRestored(t *testing.T) {
	r := newRig(t, 1)
	r.queueSeen("q", 0)
	r.podGroup("g", "q", 1)
	gone, stays := r.pod("gone", "g", "3", "n0"), r.pod("stays", "g", "3", "n0")
	waits := r.index.pods[r.pod("waits", "g", "5", "").UID].core
	r.must(r.nodes.begin())
	for _, p := range []*corev1.Pod{gone, stays} {
		r.at.Take(r.index.pods[p.UID].core, "n0")
	}
	r.must(r.sched.Cache.RemovePod(klog.Background(), gone))
	r.nodes.stale = true
	r.nodes.refresh()
	for _, p := range []*corev1.Pod{gone, stays} {
		r.at.Put(r.index.pods[p.UID].core, "n0")
	}
	if node, why := r.at.Place(waits, nil); node == "" {
		t.Error("the room of a deleted pod is not free:", why())
	}
}

// crowd adds waiting and running pods.
func (r *rig) crowd(random *rand.Rand) (waiting, running []*core.Pod) {
	r.queueSeen("q", 0)
	r.podGroup("g", "q", 1)
	for i := range 60 {
		cpu, node := []string{"1", "2", "3500m"}[random.IntN(3)], ""
		if i < 20 {
			node = fmt.Sprintf("n%d", random.IntN(6))
		}
		uid := r.pod(fmt.Sprintf("p%d", i), "g", cpu, node).UID
		if p := r.index.pods[uid].core; node == "" {
			waiting = append(waiting, p)
		} else {
			running = append(running, p)
		}
	}
	return waiting, running
}

// placeBest places a pod, which must get one of the best nodes if one fits.
func (r *rig) placeBest(p *core.Pod) string {
	scores := r.look(p)
	node, _ := r.at.Place(p, nil)
	r.must(r.nodes.err)
	if score, fits := scores[node]; fits != (len(scores) > 0) {
		r.Errorf("a pod that needs %v got node %q; it fits %v", p.Requests, node, scores)
	} else if best := highest(scores); score != best {
		r.Errorf("node %s has score %d, the best one %d", node, score, best)
	}
	return node
}

// look returns the scores of all nodes that fit, without the cached state.
func (r *rig) look(p *core.Pod) map[string]int64 {
	r.nodes.refresh()
	m, state, known := r.index.pods[types.UID(p.UID)], planningState(), r.nodes.searches
	r.nodes.searches = map[string]*search{}
	defer func() { r.nodes.searches = known }()
	result, status, _ := r.nodes.profile.RunPreFilterPlugins(r.Context(), state, m.pod)
	r.must(status.AsError())
	l, err := r.nodes.lookup(state, m, result, nil)
	r.must(err)
	scores := map[string]int64{}
	if l.run(r.Context()); len(l.fits) == 0 {
		return scores
	}
	_, err = l.best(r.Context())
	r.must(err)
	for _, at := range l.fits {
		scores[l.found[at].info.Node().Name] = l.found[at].score
	}
	return scores
}

func highest(scores map[string]int64) (best int64) {
	for _, v := range scores {
		best = max(best, v)
	}
	return best
}

// TestOrderOfNodesFollowsTheirZones verifies that a planner orders nodes whose zone has changed as a new planner does.
func TestOrderOfNodesFollowsTheirZones(t *testing.T) {
	zoned := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	}
	first := map[string]string{"a": "z1", "b": "z1", "c": "z2", "d": "z2"}
	last := map[string]string{"a": "z1", "b": "z2", "c": "z2", "d": "z1"}
	order := func(r *rig) (order []string) {
		r.must(r.nodes.begin())
		listed, err := r.nodes.snapshot.List()
		r.must(err)
		for _, info := range r.nodes.order.of(listed) {
			order = append(order, info.Node().Name)
		}
		return order
	}
	fresh, changed := newRig(t, 0), newRig(t, 0)
	for name, zone := range last {
		fresh.sched.Cache.AddNode(klog.Background(), zoned(name, zone))
		changed.sched.Cache.AddNode(klog.Background(), zoned(name, first[name]))
	}
	before := order(changed)
	for name, zone := range last {
		changed.sched.Cache.UpdateNode(klog.Background(), zoned(name, first[name]), zoned(name, zone))
	}
	want, got := order(fresh), order(changed)
	if !slices.Equal(got, want) || slices.Equal(got, before) {
		t.Errorf("the nodes are in the order %v after their zones changed, want %v; they were in the order %v", got, want, before)
	}
}
