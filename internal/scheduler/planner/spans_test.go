package planner

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func TestSpanOfAGroup(t *testing.T) {
	created := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) metav1.Time {
		return metav1.NewTime(created.Add(time.Duration(seconds) * time.Second))
	}
	pod := func(uid string, made, bound int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), CreationTimestamp: at(made)}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(bound)}}}}
	}
	owner := func(version string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: "K", Name: "n", UID: "owner", Controller: new(true)}}
	}
	for name, test := range map[string]struct {
		owners                 []metav1.OwnerReference
		pods                   []*corev1.Pod
		waits                  string
		object, parent, bounds string
	}{
		"of a job":                    {owners: owner("batch.tensorstack.dev/v1beta1"), pods: []*corev1.Pod{pod("a", 1, 7), pod("b", 3, 6)}, waits: "NoRoom", object: "owner", parent: "start job", bounds: "3-7"},
		"of nobody":                   {pods: []*corev1.Pod{pod("a", 1, 7)}, object: "group", bounds: "1-7"},
		"of a controller of somebody": {owners: owner("batch/v1"), pods: []*corev1.Pod{pod("a", 1, 7)}, object: "group", bounds: "1-7"},
		"with finished pods only":     {object: "group", bounds: "0-20"},
		"with late pods":              {pods: []*corev1.Pod{pod("a", 1, 7), pod("b", 9, 0)}, object: "group", bounds: "9-9"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &group{spec: &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "group", Namespace: "a", Name: "g", CreationTimestamp: at(0), OwnerReferences: test.owners}}}
			if g.Min = 2; test.waits != "" {
				g.lastReported = groupReport{status: metav1.ConditionFalse, reason: test.waits}
			}
			s := g.scheduleSpan(test.pods, created.Add(20*time.Second+time.Millisecond))
			bounds := fmt.Sprintf("%v-%v", s.Start.Sub(created).Seconds(), s.End.Sub(created).Seconds())
			if string(s.Object) != test.object || s.Parent != test.parent || bounds != test.bounds {
				t.Errorf("object %s, parent %q, bounds %s; want %s, %q, %s", s.Object, s.Parent, bounds, test.object, test.parent, test.bounds)
			}
			waits := ""
			for _, a := range s.Attributes {
				if a.Key == "t9k.podgroup.wait_reason" {
					waits = a.Value.AsString()
				}
			}
			if waits != test.waits {
				t.Errorf("it waits because of %q, want %q", waits, test.waits)
			}
		})
	}
	g := &group{spec: &scheduling.PodGroup{}}
	if a, b := g.scheduleSpan([]*corev1.Pod{pod("a", 0, 1)}, created), g.scheduleSpan([]*corev1.Pod{pod("b", 0, 1)}, created); a.Repetition == b.Repetition {
		t.Error("two starts of a group have the same span")
	}
}
