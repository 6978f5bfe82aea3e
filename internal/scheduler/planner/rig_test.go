package planner

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/placement"
	"tensorstack.dev/batch/internal/scheduler/podqueue"
	"tensorstack.dev/batch/internal/testing/kubescheduler"
	"tensorstack.dev/batch/internal/tracing"
)

// rig is a scheduler with its plugins, cache and queue, and a planner, without an API server. The test supplies the
// events, and acts as the planner's goroutine unless it starts the planner.
type rig struct {
	testing.TB
	*Planner
	sched  *kubescheduler.Scheduler
	wrote  *record
	serial int64
}

// record is a Writer that records which pods are evicted.
type record struct {
	evicted map[types.UID]bool
}

func (*record) Group(types.NamespacedName, scheduling.PodGroupCondition, []tracing.Span) {}
func (*record) Pod(*corev1.Pod, string, string)                                          {}
func (*record) DropPod(types.UID) bool                                                   { return false }
func (w *record) Evict(pod *corev1.Pod, _, _ string)                                     { w.evicted[pod.UID] = true }

// gate is the part of the plugin that lets pods be taken out of the queue.
type gate struct{ r *rig }

func (g gate) Name() string { return PluginName }

func (g gate) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if g.r.scheduler.Queue.Admits(pod.UID) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits")
}

func newRig(tb testing.TB, nodes int) *rig {
	tb.Helper()
	r := &rig{TB: tb, wrote: &record{evicted: map[types.UID]bool{}}}
	enable := func(p *config.Plugins) {
		p.PreEnqueue.Enabled = append(p.PreEnqueue.Enabled, config.Plugin{Name: PluginName})
	}
	r.sched = kubescheduler.New(tb, PluginName, enable, func(fwk.Handle) fwk.Plugin { return gate{r} })
	r.Planner = New(Config{}, clock.RealClock{}, Sources{Nodes: r.sched.Nodes, Synced: func() bool { return true }, WaitingPod: r.sched.Framework.GetWaitingPod}, r.wrote)
	n, err := placement.New(klog.Background(), r.sched.Framework, r.sched.Cache, r.sched.Profiles)
	r.must(err)
	queue := podqueue.New(r.sched.SchedulingQueue, r.Planner)
	r.sched.SchedulingQueue = queue
	r.Connect(Scheduler{Queue: queue, Nodes: n})
	for i := range nodes {
		r.node(fmt.Sprintf("n%d", i))
	}
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) now() time.Time { return r.clock.Now() }

// node adds a node with 8 CPUs.
func (r *rig) node(name string) {
	r.sched.AddNode(kubescheduler.Node(name))
	r.index.roomMade(true)
}

func (r *rig) queueSeen(name string, priority int32) {
	r.index.queueSeen(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: scheduling.QueueSpec{Priority: priority}})
}

// group adds a waiting gang.
func (r *rig) group(name, queue string, pods int, cpu string) {
	r.podGroup(name, queue, pods)
	for i := range pods {
		r.pod(fmt.Sprintf("%s-%d", name, i), name, cpu, "")
	}
}

func (r *rig) podGroup(name, queue string, min int) {
	r.serial++
	r.podGroupAt(name, queue, min, r.serial)
}

// podGroupAt adds a group with a creation time.
func (r *rig) podGroupAt(name, queue string, min int, created int64) {
	r.step(func(now time.Time) { r.index.podGroupSeen(kubescheduler.PodGroup(name, queue, min, created), now) })
}

// pod adds a waiting pod, or a bound pod if node is not empty.
func (r *rig) pod(name, group, cpu, node string) *corev1.Pod {
	return r.podAt(name, group, cpu, node, r.serial)
}

// podAt adds a pod with a creation time.
func (r *rig) podAt(name, group, cpu, node string, created int64) *corev1.Pod {
	p := kubescheduler.Pod(name, group, cpu, node, created)
	r.sched.AddPod(p)
	r.step(func(now time.Time) { r.podSeen(p, now) })
	return p
}

// remove removes a pod.
func (r *rig) remove(pod *corev1.Pod) {
	r.step(func(now time.Time) { r.podGone(pod, now) })
}

// drop discards the plans of all rounds, so that the next round does the same work again.
func (r *rig) drop() {
	r.scheduler.Nodes.Reset(r.Context())
	for _, m := range r.ready {
		r.index.setNode(m, "")
		m.group.changed = true
		r.index.touch(m.group, r.now())
	}
	for _, g := range r.index.groups {
		if g.Reservation != nil {
			g.Reservation, g.changed = nil, true
		}
	}
	clear(r.wrote.evicted)
	r.ready, r.nextFull = nil, time.Time{}
}

// plan runs a round.
func (r *rig) plan() {
	r.Helper()
	r.step(func(now time.Time) { r.round(r.Context(), now) })
}

// nextReady returns the next pod that has a node; nil if there is none.
func (r *rig) nextReady() *framework.QueuedPodInfo {
	reply := make(chan Popped, 1)
	r.request = &podRequest{klog.Background(), reply}
	if !r.handOut(r.Context(), r.now()) {
		return nil
	}
	return (<-reply).Info
}
