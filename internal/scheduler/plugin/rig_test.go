package plugin

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// rig is a scheduler with its plugins, cache and queue and our planner, without an API server: the test supplies the
// events. The test acts as the planner's goroutine, unless it starts that.
type rig struct {
	testing.TB
	*planner
	plugin *Plugin
	sched  *scheduler.Scheduler
	// at returns the nodes on which pods are placed.
	at     core.Nodes
	serial int64
	// list adds a node to the informer's list.
	list func(any) error
}

func newRig(tb testing.TB, nodes int) *rig {
	tb.Helper()
	ctx := tb.Context()
	client := fake.NewClientset()
	informers := scheduler.NewInformerFactory(client, 0)
	r := &rig{TB: tb}
	var p *Plugin
	plug := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p = newPlugin(handle, nil, Config{}, clock.RealClock{})
		pl := p.planner
		pl.nodeLister = informers.Core().V1().Nodes().Lister()
		pl.synced = func() bool { return true }
		pl.conditions, pl.evictions = newConditions(nil, client, nil, nil), newEvictions(client)
		return p, nil
	}
	defaults, err := latest.Default()
	r.must(err)
	ours := &defaults.Profiles[0]
	ours.SchedulerName = scheduling.SchedulerName
	enablePlugin(ours.Plugins)
	sched, err := scheduler.New(ctx, client, informers, nil,
		profile.RecorderFactory(func(string) events.EventRecorderLogger { return events.NewFakeRecorder(1000) }),
		scheduler.WithProfiles(defaults.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: plug}))
	r.must(err)
	fw := sched.Profiles[scheduling.SchedulerName]
	r.planner, r.plugin, r.sched = p.planner, p, sched
	p.connect(sched, newNodes(klog.FromContext(ctx), fw, sched.Cache, fw.SnapshotSharedLister().(*internalcache.Snapshot), r.index))
	r.at = r.nodes.within(ctx)
	r.nodes.uncounted, r.nodes.foreseen = uncountedResources(defaults.Profiles, fw.ListPlugins().Filter.Enabled)
	r.list = informers.Core().V1().Nodes().Informer().GetStore().Add
	for i := range nodes {
		r.node(fmt.Sprintf("n%d", i), r.list)
	}
	return r
}

func (r *rig) now() time.Time { return r.clock.Now() }

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// node adds a node with 8 CPUs.
func (r *rig) node(name string, list func(any) error) {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110")}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room}}
	r.must(list(n))
	r.sched.Cache.AddNode(klog.Background(), n)
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
	r.index.podGroupSeen(podGroupOf(name, queue, min, created), r.now())
}

func podGroupOf(name, queue string, min int, created int64) *scheduling.PodGroup {
	return &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(created, 0)},
		Spec:       scheduling.PodGroupSpec{MinMember: int32(min), Queue: queue}}
}

// pod adds a waiting pod, or a bound pod if node is not empty.
func (r *rig) pod(name, group, cpu, node string) *corev1.Pod {
	return r.podAt(name, group, cpu, node, r.serial)
}

// podAt adds a pod with a creation time.
func (r *rig) podAt(name, group, cpu, node string, created int64) *corev1.Pod {
	p := podOf(name, group, cpu, node, created)
	if node == "" {
		r.sched.SchedulingQueue.Add(r.Context(), p)
	} else {
		r.must(r.sched.Cache.AddPod(klog.Background(), p))
	}
	r.podSeen(p, r.now())
	return p
}

func podOf(name, group, cpu, node string, created int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Unix(created, 0),
			Labels: map[string]string{scheduling.LabelGroupName: group}},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
	}
}

// drop discards the plans of all rounds, so that the next round does the same work again.
func (r *rig) drop() {
	for uid := range r.nodes.assumed {
		r.nodes.forget(r.Context(), uid)
	}
	for _, m := range r.ready {
		r.index.place(m, "")
		m.group.changed = true
		r.index.touch(m.group, r.now())
	}
	for _, g := range r.index.groups {
		if g.core.Reservation != nil {
			g.core.Reservation, g.changed = nil, true
		}
	}
	r.ready, r.evictions.queue.values = nil, map[types.UID]eviction{}
	r.nextFull = time.Time{}
}

type queued = *framework.QueuedPodInfo

// plan runs a round.
func (r *rig) plan() {
	r.Helper()
	r.round(r.Context(), r.now())
}

// nextReady returns the next pod that has a node; nil if there is none.
func (r *rig) nextReady() *framework.QueuedPodInfo {
	reply := make(chan popped, 1)
	r.request = &podRequest{klog.Background(), reply}
	if !r.handOut(r.Context(), r.now()) {
		return nil
	}
	return (<-reply).info
}
