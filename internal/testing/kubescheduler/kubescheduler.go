// Package kubescheduler creates a real kube-scheduler with its plugins, cache and queue, but without an API server: a
// test supplies the events. The scheduling loop does not run, so a test must schedule pods itself.
package kubescheduler

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// Scheduler is a kube-scheduler with the profile of the t9k-scheduler as its only profile.
type Scheduler struct {
	*scheduler.Scheduler
	Framework framework.Framework
	Profiles  []config.KubeSchedulerProfile
	// Nodes lists the nodes of the informer.
	Nodes    corelisters.NodeLister
	tb       testing.TB
	informer cache.Store
}

// New creates a scheduler. enable adds the plugin with this name to the default plugins, and plug creates the plugin.
func New(tb testing.TB, name string, enable func(*config.Plugins), plug func(fwk.Handle) fwk.Plugin) *Scheduler {
	tb.Helper()
	client := fake.NewClientset()
	informers := scheduler.NewInformerFactory(client, 0)
	defaults, err := latest.Default()
	if err != nil {
		tb.Fatal(err)
	}
	ours := &defaults.Profiles[0]
	ours.SchedulerName = scheduling.SchedulerName
	enable(ours.Plugins)
	factory := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return plug(handle), nil
	}
	recorders := profile.RecorderFactory(func(string) events.EventRecorderLogger { return events.NewFakeRecorder(1000) })
	sched, err := scheduler.New(tb.Context(), client, informers, nil, recorders,
		scheduler.WithProfiles(defaults.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{name: factory}))
	if err != nil {
		tb.Fatal(err)
	}
	nodes := informers.Core().V1().Nodes()
	return &Scheduler{Scheduler: sched, Framework: sched.Profiles[scheduling.SchedulerName], Profiles: defaults.Profiles, Nodes: nodes.Lister(),
		tb: tb, informer: nodes.Informer().GetStore()}
}

// AddNode adds a node to the informer and the cache.
func (s *Scheduler) AddNode(n *corev1.Node) {
	s.tb.Helper()
	if err := s.informer.Add(n); err != nil {
		s.tb.Fatal(err)
	}
	s.Cache.AddNode(klog.Background(), n)
}

// AddPod adds a pod to the queue, or to the cache if the pod is bound.
func (s *Scheduler) AddPod(pod *corev1.Pod) {
	s.tb.Helper()
	if pod.Spec.NodeName == "" {
		s.SchedulingQueue.Add(s.tb.Context(), pod)
	} else if err := s.Cache.AddPod(klog.Background(), pod); err != nil {
		s.tb.Fatal(err)
	}
}

// Node returns a node with 8 CPUs, 32 GiB of memory and room for 110 pods.
func Node(name string) *corev1.Node {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110")}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room}}
}

// PodGroup returns a group in the namespace default. created is its creation time in Unix seconds.
func PodGroup(name, queue string, min int, created int64) *scheduling.PodGroup {
	return &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(created, 0)},
		Spec:       scheduling.PodGroupSpec{MinMember: int32(min), Queue: queue}}
}

// Pod returns a pod of a group in the namespace default. cpu is the quantity that it requests. If node is empty, the
// pod is not bound. created is its creation time in Unix seconds.
func Pod(name, group, cpu, node string, created int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Unix(created, 0),
			Labels: map[string]string{scheduling.LabelGroupName: group}},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName, NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
	}
}

// Bound returns a copy of a pod that is bound to a node.
func Bound(pod *corev1.Pod, node string) *corev1.Pod {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	return bound
}
