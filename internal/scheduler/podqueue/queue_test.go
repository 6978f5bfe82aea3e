package podqueue

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"tensorstack.dev/batch/internal/testing/kubescheduler"
)

// heard counts the calls of a queue to its listener.
type heard struct{ arrived, room, attracts int }

func (h *heard) PodArrived()  { h.arrived++ }
func (h *heard) RoomMade()    { h.room++ }
func (h *heard) PodAttracts() { h.attracts++ }

// gate is a PreEnqueue plugin that lets a pod pass if the queue admits it.
type gate struct{ queue **Queue }

func (gate) Name() string { return "Gate" }

func (g gate) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if (*g.queue).Admits(pod.UID) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits")
}

func newQueue(t *testing.T) (*Queue, *heard) {
	t.Helper()
	var q *Queue
	enable := func(p *config.Plugins) {
		p.PreEnqueue.Enabled = append(p.PreEnqueue.Enabled, config.Plugin{Name: "Gate"})
	}
	sched := kubescheduler.New(t, "Gate", enable, func(fwk.Handle) fwk.Plugin { return gate{&q} })
	h := &heard{}
	q = New(sched.SchedulingQueue, h)
	return q, h
}

// TestQueueKeepsPodsUntilTheyAreTaken verifies that a waiting pod is not in the scheduler's queue, that it can be taken
// once, in its latest version, and that its arrival is reported once. Pods of other schedulers are not kept.
func TestQueueKeepsPodsUntilTheyAreTaken(t *testing.T) {
	q, h := newQueue(t)
	pod, foreign := kubescheduler.Pod("p", "g", "1", "", 0), kubescheduler.Pod("other", "g", "1", "", 0)
	foreign.Spec.SchedulerName = "default-scheduler"
	changed := pod.DeepCopy()
	changed.ResourceVersion = "2"
	q.Add(t.Context(), pod)
	q.Update(t.Context(), pod, changed)
	q.Add(t.Context(), foreign)
	if pending, _ := q.PendingPods(); len(pending) != 1 || pending[0].Name != "other" || h.arrived != 1 || !q.Has(pod.UID) || q.Has(foreign.UID) {
		t.Errorf("the scheduler's queue has %d pods, %d arrivals", len(pending), h.arrived)
	}
	if info := q.Take(t.Context(), klog.Background(), pod); info == nil || info.Pod.ResourceVersion != "2" {
		t.Errorf("took %v, want the last version", info)
	}
	if info := q.Take(t.Context(), klog.Background(), pod); info != nil {
		t.Error("a pod is taken twice")
	}
	q.Delete(changed)
	if q.Has(pod.UID) {
		t.Error("a deleted pod is still there")
	}
}

// TestPodThatWasCreatedAgainReplacesTheOldOne verifies that an update to a pod with another UID, which an informer
// reports after an interrupted watch, removes the old pod and reports the new one as arrived.
func TestPodThatWasCreatedAgainReplacesTheOldOne(t *testing.T) {
	q, h := newQueue(t)
	old := kubescheduler.Pod("p", "g", "1", "", 0)
	again := old.DeepCopy()
	again.UID = "again"
	q.Add(t.Context(), old)
	q.Update(t.Context(), old, again)
	if q.Has(old.UID) || !q.Has(again.UID) || h.arrived != 2 {
		t.Errorf("the old pod is there: %v, the new one: %v, %d arrivals", q.Has(old.UID), q.Has(again.UID), h.arrived)
	}
}

// TestEventsWakeThePlanner verifies that exactly the events after which a waiting pod may fit wake the planner. Other
// events must not wake it, because each round has a cost.
func TestEventsWakeThePlanner(t *testing.T) {
	node, pod := fwk.Node, framework.EventAssignedPodAdd.Resource
	for name, test := range map[string]struct {
		event fwk.ClusterEvent
		want  heard
	}{
		"a node is added":        {fwk.ClusterEvent{Resource: node, ActionType: fwk.Add}, heard{room: 1}},
		"a taint is changed":     {fwk.ClusterEvent{Resource: node, ActionType: fwk.UpdateNodeTaint}, heard{room: 1}},
		"a pod is deleted":       {fwk.ClusterEvent{Resource: pod, ActionType: fwk.Delete}, heard{room: 1}},
		"a pod requests less":    {fwk.ClusterEvent{Resource: pod, ActionType: fwk.UpdatePodScaleDown}, heard{room: 1}},
		"a pod is bound":         {framework.EventAssignedPodAdd, heard{attracts: 1}},
		"a pod has other labels": {fwk.ClusterEvent{Resource: pod, ActionType: fwk.UpdatePodLabel}, heard{attracts: 1}},
		"a pod of any change":    {fwk.ClusterEvent{Resource: pod, ActionType: fwk.Update}, heard{}},
		"a pod waits":            {framework.EventUnscheduledPodAdd, heard{}},
		"a flush of the queue":   {framework.EventUnschedulableTimeout, heard{}},
	} {
		t.Run(name, func(t *testing.T) {
			q, h := newQueue(t)
			q.MoveAllToActiveOrBackoffQueue(klog.Background(), test.event, nil, nil, nil)
			if *h != test.want {
				t.Errorf("heard %+v, want %+v", *h, test.want)
			}
		})
	}
}
