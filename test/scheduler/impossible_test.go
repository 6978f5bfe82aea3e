package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
)

// atOnce is the longest allowed time until the scheduler reports that a group is impossible, and until a group starts
// after its quota is raised.
const atOnce = time.Second

// TestImpossibleGangIsReportedAtOnce verifies that the scheduler reports two gangs as impossible if the quota of
// their queue is too small for either, with the missing amount, and that one of them starts when the quota is raised.
// The medians of the times in several rounds must not exceed atOnce.
func TestImpossibleGangIsReportedAtOnce(t *testing.T) {
	s := quietStage(t)
	s.node("n", 8, nil)
	const rounds = 5
	var reported, started []time.Duration
	for i := range rounds {
		q, a, b := fmt.Sprint("q", i), fmt.Sprint("a", i), fmt.Sprint("b", i)
		s.queue(q, "1", 0)
		s.group(b, q, 2, "600m")
		s.group(a, q, 2, "600m")
		began := time.Now()
		s.awaitRefused(a, scheduling.ReasonImpossible)
		reported = append(reported, time.Since(began))
		s.awaitRefused(b, scheduling.ReasonImpossible)
		for _, part := range []string{"1200m cpu needed, 1 in the quota, 200m short", "raise the quota to 1200m cpu"} {
			if c := s.condition(a); !strings.Contains(c.Message, part) {
				t.Errorf("message %q lacks %q", c.Message, part)
			}
		}
		s.changeQueue(q, func(q *scheduling.QueueSpec) { q.Quota.Requests = cpus("1200m") })
		began = time.Now()
		s.Await("one of them starts", func() error {
			if s.bound(a)+s.bound(b) < 2 {
				return fmt.Errorf("the condition of %s is %+v", a, s.condition(a))
			}
			return nil
		})
		started = append(started, time.Since(began))
		first, second := a, b
		if s.bound(b) > 0 {
			first, second = b, a
		}
		s.awaitRefused(second, scheduling.ReasonQuotaExceeded)
		s.end(first)
		s.awaitBound(second, 2)
		s.end(second)
	}
	for what, times := range map[string][]time.Duration{"reported": reported, "started": started} {
		slices.Sort(times)
		t.Logf("%s after %v", what, times)
		if median := times[rounds/2]; median > atOnce {
			await.Overdue(t, fmt.Sprintf("%s after %v, want %v", what, median, atOnce))
		}
	}
}

// TestPodReasonsDistinguishPlacementFromQuota verifies that pods without a suitable node are Unschedulable, so that
// autoscalers add nodes for them, whether they are single pods or belong to a waiting gang. Pods that wait for
// another cause report that cause as their reason.
func TestPodReasonsDistinguishPlacementFromQuota(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// set changes a cluster with a node n of 4 CPUs and a queue q before 4 pods of one CPU each are created.
		// quota is the quota of q in CPUs; empty for 100.
		set    func(*stage)
		quota  string
		change func(*corev1.Pod)
		reason string
		// then changes the cluster so that the pods have the reason another. It may be nil.
		then    func(*stage)
		another string
	}{
		"no room": {reason: corev1.PodReasonUnschedulable,
			set:  func(s *stage) { s.group("runs", "q", 1, "1"); s.awaitBound("runs", 1) },
			then: func(s *stage) { s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Quota.Requests = cpus("4") }) }, another: scheduling.ReasonQuotaExceeded},
		"want of nodes": {reason: corev1.PodReasonUnschedulable,
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = cpus("2") }},
		"no node of its label": {reason: corev1.PodReasonUnschedulable,
			change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }},
		"want of quota": {reason: scheduling.ReasonImpossible, quota: "3"},
		"used quota": {reason: scheduling.ReasonQuotaExceeded, quota: "4",
			set: func(s *stage) {
				s.node("large", 100, nil)
				s.group("runs", "q", 1, "1")
				s.awaitBound("runs", 1)
			}},
		"a closed queue": {reason: scheduling.ReasonQueueClosed,
			set: func(s *stage) { s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Closed = true }) }},
		"preempting": {reason: scheduling.ReasonPreempting,
			set: func(s *stage) {
				s.queue("low", "", 0)
				s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Priority = 5 })
				s.group("runs", "low", 1, "1")
				s.awaitBound("runs", 1)
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := sharedStage(t)
			s.node("n", 4, nil)
			if test.quota == "" {
				test.quota = "100"
			}
			s.queue("q", test.quota, 0)
			if test.set != nil {
				test.set(s)
			}
			if test.change == nil {
				test.change = func(*corev1.Pod) {}
			}
			s.group("waits", "q", 4, "1", test.change)
			s.awaitPodReasons("waits", 4, test.reason)
			if test.then != nil {
				test.then(s)
				s.awaitPodReasons("waits", 4, test.another)
			}
		})
	}
}

// awaitPodReasons waits until n pods of a group have the reason in their condition PodScheduled and no other pod of
// the group is bound.
func (s *stage) awaitPodReasons(group string, n int, reason string) {
	s.Helper()
	s.Await(fmt.Sprintf("%d pods of %s have the reason %s", n, group, reason), func() error {
		reported := 0
		for _, p := range s.pods(group) {
			c := scheduledCondition(&p)
			if c.Status == corev1.ConditionFalse && c.Reason == reason {
				reported++
			} else if p.Spec.NodeName != "" {
				return fmt.Errorf("%s is bound", p.Name)
			}
		}
		if reported != n {
			return fmt.Errorf("%d have it; the condition of the group is %+v", reported, s.condition(group))
		}
		return nil
	})
}

// TestAutoscalerAddsNodesForAGang verifies, with Cluster Autoscaler's documented rules, that a gang of 8 pods that
// lacks 3 nodes gets 3 nodes, and that a gang that waits for quota gets none.
func TestAutoscalerAddsNodesForAGang(t *testing.T) {
	s := sharedStage(t)
	s.node("n", 1, nil)
	s.queue("q", "", 0)
	s.queue("full", "2", 0)
	s.group("gang", "q", 8, "1")
	s.group("over", "full", 4, "1")
	s.awaitPodReasons("gang", 8, corev1.PodReasonUnschedulable)
	s.awaitPodReasons("over", 4, scheduling.ReasonImpossible)
	free := map[string]int64{s.own("n"): 1000}
	if got := nodesToAdd(s.all(), free, 3000); got != 3 { // one pod fits the existing node, three fit each new node
		t.Errorf("the autoscaler adds %d nodes, want 3", got)
	}
	for i := range 3 {
		s.node(fmt.Sprint("new", i), 3, nil)
	}
	s.awaitBound("gang", 8)
	if got := nodesToAdd(s.all(), nil, 3000); got != 0 {
		t.Errorf("while the gang runs, the autoscaler adds %d nodes", got)
	}
}

// nodesToAdd returns the number of nodes that Cluster Autoscaler requests. free holds the free CPU of each existing
// node, from which nodesToAdd takes the room of pods that fit; size is the CPU of a new node, both in thousandths of a
// CPU. Its FAQ ("How does scale-up work?", "What are the parameters") describes the rules: it considers pods whose
// condition PodScheduled is False with reason Unschedulable, leaves out pods that would fit existing nodes, and packs
// the others on new nodes of a node group's template, largest pods first, each onto the first node with enough room.
func nodesToAdd(pods []corev1.Pod, free map[string]int64, size int64) int {
	var pending []int64
	for i := range pods {
		c := scheduledCondition(&pods[i])
		if pods[i].Spec.NodeName == "" && pods[i].DeletionTimestamp == nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			pending = append(pending, requested(&pods[i]))
		}
	}
	slices.SortFunc(pending, func(a, b int64) int { return int(b - a) })
	var added []int64
	for _, cpu := range pending {
		if fitsOne(free, cpu) || cpu > size {
			continue
		}
		at := slices.IndexFunc(added, func(left int64) bool { return left >= cpu })
		if at < 0 {
			at, added = len(added), append(added, size)
		}
		added[at] -= cpu
	}
	return len(added)
}

func requested(p *corev1.Pod) int64 {
	var sum resource.Quantity
	for i := range p.Spec.Containers {
		sum.Add(*p.Spec.Containers[i].Resources.Requests.Cpu())
	}
	return sum.MilliValue()
}

func fitsOne(free map[string]int64, cpu int64) bool {
	for name, left := range free {
		if left >= cpu {
			free[name] -= cpu
			return true
		}
	}
	return false
}
