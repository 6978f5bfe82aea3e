package plugin

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/placement"
	"tensorstack.dev/batch/internal/scheduler/planner"
	"tensorstack.dev/batch/internal/scheduler/writer"
	"tensorstack.dev/batch/internal/testing/kubescheduler"
)

// attached returns a scheduler with two nodes, which takes its pods from the planner. The planner runs until the end of
// the test.
func attached(t *testing.T) (*Plugin, *kubescheduler.Scheduler) {
	t.Helper()
	var p *Plugin
	sched := kubescheduler.New(t, Name, Enable, func(handle fwk.Handle) fwk.Plugin {
		p = newPlugin(handle, nil)
		return p
	})
	p.planner = planner.New(planner.Config{}, clock.RealClock{},
		planner.Sources{Nodes: sched.Nodes, Synced: func() bool { return true }, WaitingPod: p.handle.GetWaitingPod}, writer.New(nil, nil, nil, nil))
	for _, name := range []string{"n0", "n1"} {
		sched.AddNode(kubescheduler.Node(name))
	}
	n, err := placement.New(klog.Background(), sched.Framework, sched.Cache, sched.Profiles)
	if err != nil {
		t.Fatal(err)
	}
	blocks := make(chan struct{})
	sched.NextPod = func(klog.Logger) (*framework.QueuedPodInfo, error) { <-blocks; return nil, nil }
	p.Attach(t.Context(), sched.Scheduler, n)
	t.Cleanup(func() {
		close(blocks)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, sched
}

// TestCyclesFollowThePlan verifies that the scheduling goroutine gets the pods of a gang one after the other, that each
// pod is restricted to its planned node, and that the arrival of the last pod lets all pods bind. A pod without a plan
// cannot be scheduled.
func TestCyclesFollowThePlan(t *testing.T) {
	const size = 3
	p, sched := attached(t)
	p.planner.QueueSeen(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
	p.planner.PodGroupSeen(kubescheduler.PodGroup("g", "q", size, 1))
	for i := range size {
		pod := kubescheduler.Pod(fmt.Sprintf("g-%d", i), "g", "6", "", 1)
		if i > 1 {
			pod = kubescheduler.Pod(fmt.Sprintf("g-%d", i), "g", "1", "", 1)
		}
		sched.AddPod(pod)
		p.planner.PodSeen(pod)
	}
	used := map[string]bool{}
	for i := range size {
		info, err := sched.NextPod(klog.Background())
		if err != nil || info == nil {
			t.Fatalf("the scheduler has no pod: %v", err)
		}
		node := p.current.Node
		used[node] = true
		checkCycle(t, p, info.Pod, node)
		status, timeout := p.Permit(t.Context(), nil, info.Pod, node)
		if last := i == size-1; last != status.IsSuccess() || !last && (status.Code() != fwk.Wait || timeout < time.Minute) {
			t.Fatalf("pod %d of %d at Permit: %v, %s", i+1, size, status, timeout)
		}
	}
	if len(used) != 2 {
		t.Errorf("the plan uses the nodes %v, want both", used)
	}
}

// checkCycle verifies that a cycle of a pod may use only one node, and that a pod without a plan cannot pass the
// plugin.
func checkCycle(t *testing.T, p *Plugin, pod *corev1.Pod, node string) {
	t.Helper()
	state := framework.NewCycleState()
	result, status := p.PreFilter(t.Context(), state, pod, nil)
	if !status.IsSuccess() || !result.NodeNames.Has(node) || len(result.NodeNames) != 1 || assignedIn(state) != p.current {
		t.Fatalf("%s: %v, %v", pod.Name, status, result)
	}
	for _, name := range []string{"n0", "n1"} {
		info := framework.NewNodeInfo()
		info.SetNode(kubescheduler.Node(name))
		if got := p.Filter(t.Context(), state, pod, info).IsSuccess(); got != (name == node) {
			t.Errorf("%s is planned for %s and may use %s: %t", pod.Name, node, name, got)
		}
	}
	other := kubescheduler.Pod("other", "g", "1", "", 0)
	if _, status := p.PreFilter(t.Context(), framework.NewCycleState(), other, nil); status.IsSuccess() {
		t.Error("a pod without a plan passes PreFilter")
	}
	if status, _ := p.Permit(context.Background(), nil, other, node); status.IsSuccess() {
		t.Error("a pod without a plan passes Permit")
	}
	if status := p.PreEnqueue(t.Context(), other); status.IsSuccess() {
		t.Error("a pod without a plan passes PreEnqueue")
	}
}
