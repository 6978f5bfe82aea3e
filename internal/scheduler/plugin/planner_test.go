package plugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// started runs the planner's goroutine until the end of the test.
func (r *rig) started() {
	ctx, cancel := context.WithCancel(r.Context())
	var done sync.WaitGroup
	r.pop = func(klog.Logger) (queued, error) { <-ctx.Done(); return nil, nil }
	done.Go(func() { r.run(ctx) })
	r.Cleanup(func() { cancel(); done.Wait() })
}

// cycle runs the scheduling cycle of the next pod up to Permit.
func (r *rig) cycle() (*assignment, *fwk.Status, time.Duration) {
	got := r.next(r.Context(), klog.Background())
	if got.assignment == nil {
		r.Fatalf("the planner has no pod: %+v", got)
	}
	r.plugin.current = got.assignment
	state := planningState()
	state.Delete(plannedKey)
	pod := got.info.Pod
	result, status := r.plugin.PreFilter(r.Context(), state, pod, nil)
	if !status.IsSuccess() || !result.NodeNames.Has(got.assignment.node) || assignedIn(state) != got.assignment {
		r.Fatalf("%s: %v, %v", pod.Name, status, result)
	}
	status, timeout := r.plugin.Permit(r.Context(), state, pod, got.assignment.node)
	return got.assignment, status, timeout
}

// TestPlannerOwnsItsState sends events of pods to the planner from several goroutines, while the scheduling goroutine
// requests and binds pods and other attempts fail. The race detector verifies that the goroutines share only
// messages.
func TestPlannerOwnsItsState(t *testing.T) {
	const gangs, size = 40, 4
	r := newRig(t, 8)
	r.plugin.stop = func() {}
	r.started()
	r.inbox.post(func(time.Time) { r.queueSeen("q", 0) })
	var events sync.WaitGroup
	for g := range gangs {
		name := fmt.Sprintf("g%d", g)
		pg, pods := podGroupOf(name, "q", size, int64(g)), []*corev1.Pod{}
		for i := range size {
			pods = append(pods, podOf(fmt.Sprintf("%s-%d", name, i), name, "1", "", int64(g)))
		}
		events.Go(func() { posted(r.planner, r.index.podGroupSeen)(pg) })
		events.Go(func() {
			for _, pod := range pods {
				r.sched.SchedulingQueue.Add(t.Context(), pod)
				posted(r.planner, r.podSeen)(pod)
			}
		})
	}
	seen, bound := map[string]int{}, 0
	for bound < gangs*size {
		as, status, timeout := r.cycle()
		group := as.pod.Labels[scheduling.LabelGroupName]
		seen[group]++
		last := seen[group] == size
		if last != status.IsSuccess() || !last && (status.Code() != fwk.Wait || timeout < permitTimeout(size)-time.Second) {
			t.Fatalf("pod %d of %s: %v, %s", seen[group], group, status, timeout)
		}
		if bound++; last { // its pods run and end; another goroutine sends each of these events
			for i := range size {
				pod := boundTo(podOf(fmt.Sprintf("%s-%d", group, i), group, "1", as.node, 0), as.node)
				events.Go(func() {
					posted(r.planner, r.podSeen)(pod)
					posted(r.planner, r.podGone)(pod)
				})
			}
		}
	}
	events.Wait()
	if !r.call(func(context.Context, time.Time) {}) {
		t.Error("the planner has ended")
	}
}

// TestEndedPlannerBlocksNoCaller verifies that no caller waits for a planner that has ended.
func TestEndedPlannerBlocksNoCaller(t *testing.T) {
	r := newRig(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r.pop = func(klog.Logger) (queued, error) { <-ctx.Done(); return nil, nil }
	asked := make(chan popped)
	go func() { asked <- r.next(t.Context(), klog.Background()) }()
	var done sync.WaitGroup
	done.Go(func() { r.run(ctx) })
	for !r.waits() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if got := <-asked; got.info != nil {
		t.Error(got)
	}
	done.Wait()
	r.plugin.current = &assignment{pod: podOf("p", "g", "1", "", 0)}
	if status, _ := r.plugin.Permit(t.Context(), nil, r.plugin.current.pod, ""); status.IsSuccess() {
		t.Error("a pod passes Permit after the end")
	}
}

func (r *rig) waits() (waits bool) {
	r.call(func(context.Context, time.Time) { waits = r.request != nil })
	return waits
}

// TestPermitTimeoutGrowsWithGangSize verifies that the time for which the pods of a gang wait for one another grows
// with their number, and that the status of the group names it.
func TestPermitTimeoutGrowsWithGangSize(t *testing.T) {
	for _, c := range []struct {
		size int
		want time.Duration
	}{{2, time.Minute + 200*time.Millisecond}, {600, 2 * time.Minute}, {100_000, permitLongest}} {
		if got := permitTimeout(c.size); got != c.want {
			t.Errorf("%d pods wait for %s, want %s", c.size, got, c.want)
		}
	}
	r := newRig(t, 1)
	r.queueSeen("q", 0)
	r.group("g", "q", 3, "1")
	r.plan()
	a, now := r.ready[0].attempt, r.now()
	for range 2 {
		if r.nextReady() == nil {
			t.Fatal("no pod has a node")
		}
		if status, timeout := r.arrive(r.last, now); status.Code() != fwk.Wait || !now.Add(timeout).After(a.deadline) {
			t.Fatalf("%v, %s: the framework's bound does not come after the planner's", status, timeout)
		}
		r.finishLast(now)
		now = now.Add(30 * time.Second)
	}
	now = now.Add(-time.Minute)
	if r.overdue(now.Add(permitTimeout(3) - time.Millisecond)); a.why != "" || len(r.gathering) != 1 {
		t.Fatalf("before its time: %q", a.why)
	}
	r.overdue(now.Add(permitTimeout(3)))
	said := r.index.groups["default/g"].lastReported
	for _, part := range []string{"1 of the 3 pods", "within 1m0.3s", "1m0s, and 100ms for each pod"} {
		if said.reason != scheduling.ReasonBindingFailed || !strings.Contains(said.message, part) {
			t.Errorf("the group reports %s: %q, which lacks %q", said.reason, said.message, part)
		}
	}
	if len(r.gathering) != 0 || r.index.groups["default/g"].failures != 1 {
		t.Error("the attempt continues")
	}
	if status, _ := r.arrive(&assignment{attempt: a, pod: r.ready[0].pod}, now); status.IsSuccess() || status.Code() == fwk.Wait {
		t.Errorf("its last pod is let through: %v", status)
	}
}

// TestLateUnreserveLeavesNewPlanAlone verifies that the Unreserve call of a rejected pod does not affect a new plan
// that has a node for the pod.
func TestLateUnreserveLeavesNewPlanAlone(t *testing.T) {
	r := newRig(t, 1)
	r.queueSeen("q", 0)
	r.group("g", "q", 1, "1")
	r.plan()
	m := r.ready[0]
	old := &assignment{attempt: m.attempt, pod: m.pod}
	r.nodes.forget(t.Context(), m.pod.UID)
	r.ready = nil
	r.fail(old.attempt, "a test", r.now())
	r.giveUp(old, r.now())
	m.group.backoff = time.Time{}
	r.plan()
	if len(r.ready) != 1 || m.core.Node == "" || m.attempt == old.attempt {
		t.Fatal("the pod is not planned again")
	}
	if r.unbound(old, r.now()); m.core.Node == "" {
		t.Error("the new plan has lost its node")
	}
}

// TestRoundWaitsForTheCache verifies that no round runs while the scheduler's cache contains a deleted pod. Such a
// round would find no room and evict another pod instead.
func TestRoundWaitsForTheCache(t *testing.T) {
	r := newRig(t, 1)
	r.leads = true
	pod := podOf("p", "g", "1", "", 0)
	pod = boundTo(pod, "n0")
	if err := r.nodes.cache.AddPod(klog.Background(), pod); err != nil {
		t.Fatal(err)
	}
	now := r.now()
	r.podGone(pod, now)
	if !r.awaitsCache(now) {
		t.Error("a round runs before the cache has removed the pod")
	}
	if r.awaitsCache(now.Add(2 * tick)) {
		t.Error("a round waits without end")
	}
	r.podGone(pod, now)
	if err := r.nodes.cache.RemovePod(klog.Background(), pod); err != nil {
		t.Fatal(err)
	}
	if r.awaitsCache(now) || len(r.leaving) > 0 {
		t.Error("a round waits although the cache has removed the pod")
	}
}
