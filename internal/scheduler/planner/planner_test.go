package planner

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
	"k8s.io/kubernetes/pkg/scheduler/framework"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/testing/kubescheduler"
	"tensorstack.dev/batch/test/kit/await"
)

// started runs the planner's goroutine until the test calls stop or ends.
func (r *rig) started() (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var done sync.WaitGroup
	r.scheduler.Pop = func(klog.Logger) (*framework.QueuedPodInfo, error) { <-ctx.Done(); return nil, nil }
	done.Go(func() { r.Run(ctx) })
	stop = func() { cancel(); done.Wait() }
	r.Cleanup(stop)
	return stop
}

// cycle runs the scheduling cycle of the next pod up to Permit.
func (r *rig) cycle() (*Assignment, *fwk.Status, time.Duration) {
	got := r.Next(r.Context(), klog.Background())
	if got.Assignment == nil {
		r.Fatalf("the planner has no pod: %+v", got)
	}
	status, timeout := r.Permit(got.Assignment)
	return got.Assignment, status, timeout
}

// TestPlannerOwnsItsState verifies with the race detector that goroutines share only messages with the planner: several
// goroutines send events of pods, while the scheduling goroutine requests pods and calls Permit.
func TestPlannerOwnsItsState(t *testing.T) {
	const gangs, size = 40, 4
	r := newRig(t, 8)
	r.started()
	r.inbox.post(func(time.Time) { r.queueSeen("q", 0) })
	var events sync.WaitGroup
	for g := range gangs {
		name := fmt.Sprintf("g%d", g)
		pg, pods := kubescheduler.PodGroup(name, "q", size, int64(g)), []*corev1.Pod{}
		for i := range size {
			pods = append(pods, kubescheduler.Pod(fmt.Sprintf("%s-%d", name, i), name, "1", "", int64(g)))
		}
		events.Go(func() { r.PodGroupSeen(pg) })
		events.Go(func() {
			for _, pod := range pods {
				r.sched.SchedulingQueue.Add(t.Context(), pod)
				r.PodSeen(pod)
			}
		})
	}
	seen, bound := map[string]int{}, 0
	for bound < gangs*size {
		as, status, timeout := r.cycle()
		group := as.Pod.Labels[scheduling.LabelGroupName]
		seen[group]++
		last := seen[group] == size
		if last != status.IsSuccess() || !last && (status.Code() != fwk.Wait || timeout < permitTimeout(size)-time.Second) {
			t.Fatalf("pod %d of %s: %v, %s", seen[group], group, status, timeout)
		}
		if bound++; last { // its pods run and finish; another goroutine sends each of these events
			for i := range size {
				pod := kubescheduler.Bound(kubescheduler.Pod(fmt.Sprintf("%s-%d", group, i), group, "1", as.Node, 0), as.Node)
				events.Go(func() {
					r.PodSeen(pod)
					r.PodGone(pod)
				})
			}
		}
	}
	events.Wait()
	if !r.call(func(context.Context, time.Time) {}) {
		t.Error("the planner has ended")
	}
}

// TestEndedPlannerBlocksNoCaller verifies that callers do not wait for a planner that has ended, and that no pod then
// passes Permit.
func TestEndedPlannerBlocksNoCaller(t *testing.T) {
	r := newRig(t, 1)
	asked := make(chan Popped)
	go func() { asked <- r.Next(t.Context(), klog.Background()) }()
	stop := r.started()
	await.That(t, "the scheduling goroutine waits for a pod", r.waits)
	stop()
	if got := <-asked; got.Info != nil {
		t.Error(got)
	}
	if status, _ := r.Permit(&Assignment{Pod: kubescheduler.Pod("p", "g", "1", "", 0)}); status.IsSuccess() {
		t.Error("a pod passes Permit after the end")
	}
}

func (r *rig) waits() (waits bool) {
	r.call(func(context.Context, time.Time) { waits = r.request != nil })
	return waits
}

// TestPermitTimeoutGrowsWithGangSize verifies that the time for which the pods of a gang wait for one another grows
// with their number up to permitLongest, that the attempt fails once this time has passed, and that the status of the
// group then names the time.
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
	reported := r.index.groups["default/g"].lastReported
	for _, part := range []string{"1 of the 3 pods", "within 1m0.3s", "1m0s, and 100ms for each pod"} {
		if reported.reason != scheduling.ReasonBindingFailed || !strings.Contains(reported.message, part) {
			t.Errorf("the group reports %s: %q, which lacks %q", reported.reason, reported.message, part)
		}
	}
	if len(r.gathering) != 0 || r.index.groups["default/g"].failures != 1 {
		t.Error("the attempt continues")
	}
	if status, _ := r.arrive(&Assignment{Pod: r.ready[0].object, attempt: a}, now); status.IsSuccess() || status.Code() == fwk.Wait {
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
	old := &Assignment{Pod: m.object, attempt: m.attempt}
	r.scheduler.Nodes.Forget(t.Context(), m.object.UID)
	r.ready = nil
	r.fail(old.attempt, "a test", r.now())
	r.giveUp(old, r.now())
	m.group.backoff = time.Time{}
	r.plan()
	if len(r.ready) != 1 || m.Node == "" || m.attempt == old.attempt {
		t.Fatal("the pod is not planned again")
	}
	if r.unbound(old, r.now()); m.Node == "" {
		t.Error("the new plan has lost its node")
	}
}

// TestRoundWaitsForTheCache verifies that no round runs while the scheduler's cache contains a deleted pod, for a
// limited time. Such a round would find no room and evict another pod instead.
func TestRoundWaitsForTheCache(t *testing.T) {
	r := newRig(t, 1)
	r.leads = true
	pod := kubescheduler.Pod("p", "g", "1", "", 0)
	pod = kubescheduler.Bound(pod, "n0")
	if err := r.sched.Cache.AddPod(klog.Background(), pod); err != nil {
		t.Fatal(err)
	}
	now := r.now()
	r.podGone(pod, now)
	if !r.awaitsCache(now) {
		t.Error("a round runs before the cache has removed the pod")
	}
	if r.awaitsCache(now.Add(2 * deadlineInterval)) {
		t.Error("a round waits without end")
	}
	r.podGone(pod, now)
	if err := r.sched.Cache.RemovePod(klog.Background(), pod); err != nil {
		t.Fatal(err)
	}
	if r.awaitsCache(now) || len(r.departed) > 0 {
		t.Error("a round waits although the cache has removed the pod")
	}
}
