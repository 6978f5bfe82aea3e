package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/scheduler/podspec"
	"tensorstack.dev/batch/internal/testing/kubescheduler"
)

// rig is a scheduler's nodes and the pods of one group.
type rig struct {
	testing.TB
	*Nodes
	sched *kubescheduler.Scheduler
	// at places and removes the pods of the test.
	at   core.Nodes
	pods map[types.UID]*Pod
}

// idle is a plugin that does nothing.
type idle struct{}

func (idle) Name() string { return "Idle" }

func newRig(tb testing.TB, nodes int) *rig {
	tb.Helper()
	r := &rig{TB: tb, pods: map[types.UID]*Pod{}}
	r.sched = kubescheduler.New(tb, "Idle", func(*config.Plugins) {}, func(fwk.Handle) fwk.Plugin { return idle{} })
	var err error
	r.Nodes, err = New(klog.Background(), r.sched.Framework, r.sched.Cache, r.sched.Profiles)
	r.must(err)
	r.at = r.Within(tb.Context())
	for i := range nodes {
		r.sched.AddNode(kubescheduler.Node(fmt.Sprintf("n%d", i)))
	}
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) begin() {
	r.Helper()
	r.must(r.Begin(func(uid types.UID) *Pod { return r.pods[uid] }))
}

// pod adds a waiting pod, or a bound pod if node is not empty.
func (r *rig) pod(name, cpu, node string) *core.Pod {
	pod := kubescheduler.Pod(name, "g", cpu, node, 0)
	r.sched.AddPod(pod)
	r.pods[pod.UID] = &Pod{Object: pod, Group: "g"}
	requests := podspec.Requests(pod)
	return &core.Pod{UID: string(pod.UID), Name: name, Requests: requests, Shape: podspec.Shape(pod, requests), Node: node}
}

// TestCachedSearchEqualsFreshSearch verifies that a search with cached state places each pod on a node with the highest
// score in a fresh evaluation of all nodes, while pods of a few shapes are placed and removed, and running pods are
// removed and restored.
func TestCachedSearchEqualsFreshSearch(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t, 12)
		waiting, running := r.crowd(random)
		r.begin()
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

// TestPodThatEndsDuringAPlanIsNotRestored verifies that a pod that terminates while a plan has removed it is not
// restored with the others.
func TestPodThatEndsDuringAPlanIsNotRestored(t *testing.T) {
	r := newRig(t, 1)
	gone, stays, waits := r.pod("gone", "3", "n0"), r.pod("stays", "3", "n0"), r.pod("waits", "5", "")
	r.begin()
	for _, p := range []*core.Pod{gone, stays} {
		r.at.Take(p, "n0")
	}
	r.must(r.sched.Cache.RemovePod(klog.Background(), r.pods[types.UID(gone.UID)].Object))
	r.stale = true
	r.refresh()
	for _, p := range []*core.Pod{gone, stays} {
		r.at.Put(p, "n0")
	}
	if node, why := r.at.Place(waits, nil); node == "" {
		t.Error("the room of a deleted pod is not free:", why())
	}
}

// crowd adds waiting and running pods.
func (r *rig) crowd(random *rand.Rand) (waiting, running []*core.Pod) {
	for i := range 60 {
		cpu, node := []string{"1", "2", "3500m"}[random.IntN(3)], ""
		if i < 20 {
			node = fmt.Sprintf("n%d", random.IntN(6))
		}
		if p := r.pod(fmt.Sprintf("p%d", i), cpu, node); node == "" {
			waiting = append(waiting, p)
		} else {
			running = append(running, p)
		}
	}
	return waiting, running
}

// placeBest places a pod and verifies that it gets one of the best nodes if it fits on any node.
func (r *rig) placeBest(p *core.Pod) string {
	scores := r.scores(p)
	node, _ := r.at.Place(p, nil)
	r.must(r.Err())
	if score, fits := scores[node]; fits != (len(scores) > 0) {
		r.Errorf("a pod that needs %v got node %q; it fits %v", p.Requests, node, scores)
	} else if best := highest(scores); score != best {
		r.Errorf("node %s has score %d, the best one %d", node, score, best)
	}
	return node
}

// scores returns the scores of all nodes on which the pod fits, without the cached state.
func (r *rig) scores(p *core.Pod) map[string]int64 {
	r.refresh()
	w, state, known := r.pods[types.UID(p.UID)], planningState(), r.searches
	r.searches = map[string]*search{}
	defer func() { r.searches = known }()
	result, status, _ := r.profile.RunPreFilterPlugins(r.Context(), state, w.Object)
	r.must(status.AsError())
	l, err := r.lookup(state, p, w, result, nil)
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

// TestOrderOfNodesFollowsTheirZones verifies that Nodes orders nodes whose zones have changed in the same way as new
// Nodes that never saw the old zones.
func TestOrderOfNodesFollowsTheirZones(t *testing.T) {
	zoned := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	}
	first := map[string]string{"a": "z1", "b": "z1", "c": "z2", "d": "z2"}
	last := map[string]string{"a": "z1", "b": "z2", "c": "z2", "d": "z1"}
	order := func(r *rig) (order []string) {
		r.begin()
		listed, err := r.snapshot.List()
		r.must(err)
		for _, info := range r.order.of(listed) {
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
