package planner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// t0 is the time of the events in tests in which no time passes.
var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testIndex returns an index with a group whose minimum is three pods, and the group. The group has no pods yet.
func testIndex() (*index, *group) {
	x := newIndex()
	x.podGroupSeen(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "g"}, Spec: scheduling.PodGroupSpec{MinMember: 3, Queue: "q"}}, t0)
	return x, x.groups["ns/g"]
}

func memberOf(name, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Labels: map[string]string{scheduling.LabelGroupName: "g"}},
		Spec: corev1.PodSpec{SchedulerName: scheduling.SchedulerName}}
}

func ended(name, uid string, deleted bool) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: memberOf(name, uid).ObjectMeta}
	if deleted {
		o.DeletionTimestamp = &metav1.Time{Time: t0}
	}
	return o
}

func finishedMembers(g *group) (n int) {
	for _, v := range g.Finished {
		n += v
	}
	return n
}

// TestDeletedPodsAreNotFinished verifies that the pods of an evicted gang do not count as finished: they terminate
// because they are deleted, and all of them are created again.
func TestDeletedPodsAreNotFinished(t *testing.T) {
	x, g := testIndex()
	x.finishedSeen(ended("a", "a", true), t0)
	x.finishedSeen(ended("b", "b", true), t0)
	x.podSeen(memberOf("c", "c2"), t0)
	if n := finishedMembers(g); n != 0 || g.Complete {
		t.Errorf("%d of the deleted pods count as finished", n)
	}
	x.finishedSeen(ended("d", "d", false), t0)
	if n := finishedMembers(g); n != 1 {
		t.Errorf("%d pods count as finished, want 1", n)
	}
	x.finishedSeen(ended("d", "d", true), t0)
	if n := finishedMembers(g); n != 0 {
		t.Error("a pod that was deleted after its end still counts as finished")
	}
}

// TestReplacementWaitsForEndsOfOtherMembers verifies that a new pod in a group with finished members is planned only
// after finishedLag, within which the planner would see that these members are deleted too.
func TestReplacementWaitsForEndsOfOtherMembers(t *testing.T) {
	x, g := testIndex()
	x.podSeen(memberOf("a", "a"), t0)
	if !g.backoff.IsZero() {
		t.Error("a new group is delayed")
	}
	x.finishedSeen(ended("b", "b", false), t0)
	x.podSeen(memberOf("c", "c"), t0)
	if wait := g.backoff.Sub(t0); wait != finishedLag {
		t.Errorf("it is planned %s after the event, want %s", wait, finishedLag)
	}
}

// TestRunningGangStaysCompleteAfterRestart verifies that a gang that runs while one of its pods waits for room counts
// as complete. A new scheduler reads this from the status of the group, in whatever order the events arrive, and keeps
// the gang running. A gang whose pods have all been deleted in the meantime counts as new.
func TestRunningGangStaysCompleteAfterRestart(t *testing.T) {
	bound := memberOf("a", "a")
	bound.Spec.NodeName = "n"
	waits := memberOf("b", "b")
	for name, pods := range map[string][]*corev1.Pod{"bound first": {bound, waits}, "bound last": {waits, bound}} {
		x := newIndex()
		x.podGroupSeen(whole(), t0)
		for _, p := range pods {
			x.podSeen(p, t0)
		}
		x.fill(t0)
		if g := x.groups["ns/g"]; !g.Complete || !g.Partial.IsZero() {
			t.Errorf("%s: complete %t, partly bound since %v", name, g.Complete, g.Partial)
		}
	}

	x := newIndex()
	x.podGroupSeen(whole(), t0)
	x.podSeen(waits, t0)
	x.fill(t0)
	g := x.groups["ns/g"]
	if g.Complete {
		t.Error("a group without running pods is complete")
	}
	x.podSeen(bound, t0)
	if g.Complete || g.Partial.IsZero() {
		t.Errorf("a new gang that is bound in part: complete %t, partly bound since %v", g.Complete, g.Partial)
	}
}

func whole() *scheduling.PodGroup {
	pg := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "g"}, Spec: scheduling.PodGroupSpec{MinMember: 3, Queue: "q"}}
	pg.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: metav1.ConditionTrue, Reason: scheduling.ReasonScheduled}}
	return pg
}

// TestPriorityIsBoundedByItsQueue verifies that a group whose priority is outside the bounds of its queue, for example
// after the bounds changed, gets the nearest allowed priority.
func TestPriorityIsBoundedByItsQueue(t *testing.T) {
	x := newIndex()
	for name, priority := range map[string]int32{"low": 0, "middle": 50, "high": 100} {
		x.podGroupSeen(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: "q", Priority: priority}}, t0)
	}
	bounded := func(least, most *int32) *scheduling.Queue {
		return &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: scheduling.QueueSpec{GroupPriority: &scheduling.PriorityRange{Min: least, Max: most}}}
	}
	for _, step := range []struct {
		what              string
		queue             *scheduling.Queue
		low, middle, high int32
	}{
		{"no bounds", &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, 0, 50, 100},
		{"both", bounded(new(int32(10)), new(int32(60))), 10, 50, 60},
		{"narrower", bounded(new(int32(20)), new(int32(30))), 20, 30, 30},
		{"only a minimum", bounded(new(int32(70)), nil), 70, 70, 100},
		{"only a maximum", bounded(nil, new(int32(40))), 0, 40, 40},
		{"none any more", &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, 0, 50, 100},
	} {
		x.queueSeen(step.queue)
		for name, want := range map[string]int32{"low": step.low, "middle": step.middle, "high": step.high} {
			if got := x.groups["ns/"+name].Priority; got != want {
				t.Errorf("%s: the priority of %s is %d, want %d", step.what, name, got, want)
			}
		}
	}
	x.queueSeen(bounded(new(int32(20)), new(int32(30))))
	x.podGroupSeen(&scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "late", UID: "late"},
		Spec: scheduling.PodGroupSpec{MinMember: 1, Queue: "q", Priority: 99}}, t0)
	if got := x.groups["ns/late"].Priority; got != 30 {
		t.Errorf("the priority of a group that is created after the bounds is %d, want 30", got)
	}
}
