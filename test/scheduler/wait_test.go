package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// TestSmallerGroupsBackfill verifies that a group that does not fit delays neither smaller groups of its own queue
// nor those of another queue.
func TestSmallerGroupsBackfill(t *testing.T) {
	s := sharedStage(t)
	s.simulated("n", 4)
	s.queue("q", "", 5)
	s.queue("other", "", 0)
	s.group("runs", "q", 1, "2")
	s.awaitBound("runs", 1)
	s.group("big", "q", 4, "1")
	s.awaitRefused("big", scheduling.ReasonNoRoom)
	s.group("small", "q", 1, "1")
	s.awaitBound("small", 1)
	s.group("small2", "other", 1, "1")
	s.awaitBound("small2", 1)
	s.end("runs", "small", "small2")
	s.awaitBound("big", 4)
}

// wakingEvent is an event that makes a waiting group fit. change changes the pods of the group, and wake causes the
// event. reason is the reason for which the group waits; empty for NoRoom.
type wakingEvent struct {
	set    func(*stage) // changes a cluster with a node n of 4 CPUs and a queue q
	change func(*stage, *corev1.Pod)
	reason string
	wake   func(*stage)
}

var wakingEvents = map[string]wakingEvent{
	"a node is added": {
		set:  func(s *stage) { s.group("runs", "q", 1, "1"); s.awaitBound("runs", 1) },
		wake: func(s *stage) { s.node("n2", 4, nil) }},
	"a pod is deleted": {
		set:  func(s *stage) { s.group("runs", "q", 1, "1"); s.awaitBound("runs", 1) },
		wake: func(s *stage) { s.end("runs") }},
	"a pod finishes": {
		set:  func(s *stage) { s.group("runs", "q", 1, "1"); s.awaitBound("runs", 1) },
		wake: func(s *stage) { s.succeed("runs-0") }},
	"a pod of the default scheduler is deleted": {
		set:  func(s *stage) { s.pod("runs", "1", s.byDefault); s.awaitPod("runs") },
		wake: func(s *stage) { s.remove("runs") }},
	"the quota is raised": {reason: scheduling.ReasonImpossible,
		set:  func(s *stage) { s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Quota.Requests = cpus("3") }) },
		wake: func(s *stage) { s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Quota.Requests = cpus("4") }) }},
	"the queue may use more nodes": {reason: scheduling.ReasonImpossible,
		set: func(s *stage) {
			s.changeQueue("q", func(q *scheduling.QueueSpec) { q.NodeSelector.MatchLabels["more"] = "yes" })
		},
		wake: func(s *stage) {
			s.changeQueue("q", func(q *scheduling.QueueSpec) { q.NodeSelector = s.nodeSelector() })
		}},
	"the queue is opened": {reason: scheduling.ReasonQueueClosed,
		set:  func(s *stage) { s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Closed = true }) },
		wake: func(s *stage) { s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Closed = false }) }},
	"the queue is created": {reason: scheduling.ReasonQueueNotFound,
		set: func(s *stage) {
			s.Must(s.Client.Delete(s.Context(), &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: s.own("q")}}))
		},
		wake: func(s *stage) { s.queue("q", "", 0) }},
	"a taint is removed": {reason: scheduling.ReasonImpossible,
		set: func(s *stage) {
			s.changeNode("n", func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
			})
		},
		wake: func(s *stage) { s.changeNode("n", func(n *corev1.Node) { n.Spec.Taints = nil }) }},
	"a node is uncordoned": {
		set:  func(s *stage) { s.changeNode("n", func(n *corev1.Node) { n.Spec.Unschedulable = true }) },
		wake: func(s *stage) { s.changeNode("n", func(n *corev1.Node) { n.Spec.Unschedulable = false }) }},
	"a node gets a label": {reason: scheduling.ReasonImpossible,
		set:    func(*stage) {},
		change: func(_ *stage, p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
		wake:   func(s *stage) { s.changeNode("n", func(n *corev1.Node) { n.Labels["disk"] = "ssd" }) }},
	"a node grows": {
		set: func(s *stage) { s.group("runs", "q", 1, "1"); s.awaitBound("runs", 1) },
		wake: func(s *stage) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.own("n")}}
			patch := fmt.Appendf(nil, `{"status":{"allocatable":{"cpu":%q}}}`, resource.NewQuantity(5, resource.DecimalSI))
			s.Must(s.Client.Status().Patch(s.Context(), n, mergePatch(patch)))
		}},
	"a pod starts to which the group has affinity": {
		set: func(*stage) {},
		change: func(_ *stage, p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = cpus("500m")
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "store"}}}}}}
		},
		wake: func(s *stage) {
			s.pod("store", "1", s.byDefault, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "store"} })
		}},
	"a pod ends to which the group has anti-affinity": {
		set: func(s *stage) {
			s.pod("store", "1", s.byDefault, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "store"} })
			s.awaitPod("store")
		},
		change: func(_ *stage, p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = cpus("500m")
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "store"}}}}}}
		},
		wake: func(s *stage) { s.remove("store") }},
}

// TestEventsWakeWaitingGroups verifies that each event that makes a group fit starts the group, well before the
// scheduler would retry it.
func TestEventsWakeWaitingGroups(t *testing.T) {
	quiet := quietStage(t)
	for name, test := range wakingEvents {
		t.Run(name, func(t *testing.T) {
			s := newPart(t, quiet.Plane)
			s.node("n", 4, nil)
			s.queue("q", "", 0)
			test.set(s)
			change := func(p *corev1.Pod) {
				if test.change != nil {
					test.change(s, p)
				}
			}
			if test.reason == "" {
				test.reason = scheduling.ReasonNoRoom
			}
			s.group("waits", "q", 4, "1", change)
			s.awaitRefused("waits", test.reason)
			test.wake(s)
			s.awaitSoon("waits", 4)
		})
	}
}

// TestWaitingGroupGetsReservation verifies that a group that has waited longer than reserveAfter gets a reservation:
// room that becomes free is kept for it and not given to other groups.
func TestWaitingGroupGetsReservation(t *testing.T) {
	t.Parallel()
	s := newStage(t, "reserveAfter: 2s")
	s.node("n", 4, nil)
	for i := range 4 {
		s.group(fmt.Sprintf("runs%d", i), "default", 1, "1")
		s.awaitBound(fmt.Sprintf("runs%d", i), 1)
	}
	s.group("big", "default", 4, "1")
	s.awaitRefused("big", scheduling.ReasonReserved)
	for i := range 4 {
		s.end(fmt.Sprintf("runs%d", i))
		if i == 3 {
			break
		}
		late := fmt.Sprintf("late%d", i)
		s.group(late, "default", 1, "1")
		s.awaitRefused(late, scheduling.ReasonNoRoom)
		if n := s.bound("big"); n != 0 {
			t.Fatalf("%d pods of the gang are bound before there is room for all", n)
		}
	}
	s.awaitBound("big", 4)
	for i := range 3 {
		if n := s.bound(fmt.Sprintf("late%d", i)); n != 0 {
			t.Errorf("late%d runs in room that is reserved for another group", i)
		}
	}
	s.end("big")
	for i := range 3 {
		s.awaitBound(fmt.Sprintf("late%d", i), 1)
	}
}

// TestClosedQueueStartsNothingNew verifies that the running groups of a closed queue continue and get replacements, and
// that no new group starts.
func TestClosedQueueStartsNothingNew(t *testing.T) {
	s := sharedStage(t)
	s.node("n", 10, nil)
	s.queue("q", "", 0)
	s.group("runs", "q", 2, "1")
	s.awaitBound("runs", 2)
	s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Closed = true })
	s.group("new", "q", 2, "1")
	s.awaitRefused("new", scheduling.ReasonQueueClosed)
	s.remove("runs-1")
	s.member("runs-2", "runs", "q", "1")
	s.awaitPod("runs-2")
	if n := s.bound("runs"); n != 2 {
		t.Errorf("%d pods of the running group are bound", n)
	}
}

// TestSchedulersDoNotOvercommitNodes verifies that the pods of either scheduler do not use room that pods of the other
// scheduler occupy.
func TestSchedulersDoNotOvercommitNodes(t *testing.T) {
	s := sharedStage(t)
	s.node("n0", 4, nil)
	s.node("n1", 4, nil)
	s.queue("q", "", 0)
	s.pod("theirs", "3", s.byDefault)
	s.awaitPod("theirs")
	s.group("g", "q", 2, "4")
	s.awaitRefused("g", scheduling.ReasonNoRoom)
	s.remove("theirs")
	s.awaitBound("g", 2)
	theirs := s.pod("theirs2", "1", s.byDefault)
	s.Await("there is no room for a pod of the default scheduler", func() error {
		s.Must(s.Client.Get(t.Context(), keyOf(theirs), theirs))
		if c := scheduledCondition(theirs); c.Reason != corev1.PodReasonUnschedulable {
			return fmt.Errorf("conditions %v", theirs.Status.Conditions)
		}
		return nil
	})
	single := s.pod("single", "1", func(p *corev1.Pod) { p.Labels = map[string]string{scheduling.LabelQueue: s.own("q")} })
	s.end("g")
	s.awaitPod(theirs.Name)
	s.awaitPod(single.Name)
}
