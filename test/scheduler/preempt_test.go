package scheduler

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func (s *stage) awaitEvicted(pods ...string) {
	s.Helper()
	s.Await(fmt.Sprint(pods, " are evicted"), func() error {
		if got := s.evicted(); !slices.Equal(got, pods) {
			return fmt.Errorf("%v are", got)
		}
		for _, p := range s.all() {
			if disrupted(&p) && p.DeletionTimestamp == nil {
				return fmt.Errorf("%s has not been evicted", p.Name)
			}
		}
		return nil
	})
}

// TestPreemptedRoomIsReservedForThePreemptor verifies the example of preemption in the scheduler's specification. It
// also verifies that the room of a preempted pod is reserved for the group that preempted it, so that not even a pod of
// the default scheduler gets this room.
func TestPreemptedRoomIsReservedForThePreemptor(t *testing.T) {
	s := sharedStage(t)
	s.node("n", 300, nil)
	for _, q := range []struct {
		name, cpu string
		priority  int32
	}{{"a", "200", 1}, {"b", "100", 1}, {"c", "50", 2}, {"d", "200", 2}} {
		s.queue(q.name, q.cpu, q.priority)
	}
	for _, g := range []string{"a1", "a2", "a3", "b1", "c1", "d1"} {
		s.group(g, g[:1], 1, "50")
		s.awaitBound(g, 1)
	}
	s.group("b2", "b", 1, "50")
	s.awaitRefused("b2", scheduling.ReasonNoRoom)
	s.group("c2", "c", 1, "50")
	s.awaitRefused("c2", scheduling.ReasonQuotaExceeded)
	s.group("d2", "d", 1, "50")
	s.awaitRefused("d2", scheduling.ReasonPreempting)
	s.awaitEvicted("a3-0")
	thief := s.pod("thief", "50", s.byDefault)
	s.Await("the default scheduler finds no room", func() error {
		s.Must(s.Client.Get(t.Context(), client.ObjectKeyFromObject(thief), thief))
		if c := scheduledCondition(thief); c.Reason != corev1.PodReasonUnschedulable {
			return fmt.Errorf("conditions %v", thief.Status.Conditions)
		}
		return nil
	})
	s.remove("a3-0")
	s.awaitBound("d2", 1)
	for group, want := range map[string]int{"a1": 1, "a2": 1, "b1": 1, "c1": 1, "d1": 1, "b2": 0, "c2": 0} {
		if got := s.bound(group); got != want {
			t.Errorf("%d pods of %s are bound, want %d", got, group, want)
		}
	}
	s.Must(s.Client.Get(t.Context(), client.ObjectKeyFromObject(thief), thief))
	if thief.Spec.NodeName != "" {
		t.Error("a pod of the default scheduler took the room that was freed for a group")
	}
}

// TestQueuesPreemptTheLowestQueueFirst verifies which pods a group preempts on three nodes of 4 CPUs.
func TestQueuesPreemptTheLowestQueueFirst(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		runs []string // the queues of groups of one pod of 4 CPUs, in the order in which the groups start
		set  func(*stage)
		want []string
	}{
		"lowest queue first":                {runs: []string{"mid", "low", "high"}, want: []string{"low1-0"}},
		"never from equal or higher queues": {runs: []string{"high", "high", "top"}},
		"never from a protected queue":      {runs: []string{"safe", "safe", "safe"}},
		"a gang as a whole": {set: func(s *stage) {
			s.group("gang", "low", 3, "4")
			s.awaitBound("gang", 3)
		}, want: []string{"gang-0", "gang-1", "gang-2"}},
		"what is beyond the minimum of a gang": {set: func(s *stage) {
			s.podGroup("gang", "low", 2)
			s.members("gang", "low", 3, "4")
			s.awaitBound("gang", 3)
		}, want: []string{"gang-2"}},
		"no more than is needed": {runs: []string{"low", "low", "mid"}, want: []string{"low1-0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := sharedStage(t)
			for i := range 3 {
				s.node(fmt.Sprintf("n%d", i), 4, nil)
			}
			for i, q := range []string{"low", "mid", "high", "top"} {
				s.queue(q, "", int32(i))
			}
			s.queue("safe", "", 0, protected)
			for i, queue := range test.runs {
				g := fmt.Sprint(queue, i)
				s.group(g, queue, 1, "4")
				s.awaitBound(g, 1)
				s.awaitLaterThan(g)
			}
			if test.set != nil {
				test.set(s)
			}
			s.group("new", "high", 1, "4")
			if test.want == nil {
				s.awaitRefused("new", scheduling.ReasonNoRoom)
				s.awaitEvicted()
				return
			}
			s.awaitRefused("new", scheduling.ReasonPreempting)
			s.awaitEvicted(test.want...)
			for _, p := range test.want {
				s.remove(p)
			}
			s.awaitBound("new", 1)
			s.awaitEvicted()
		})
	}
}

// TestPreemptionEvictsOnlyIfTheGangFits verifies that a gang that would not fit even after all evictions evicts no pod,
// and that the room of a preempted pod goes to other groups if the gang that preempted it is deleted.
func TestPreemptionEvictsOnlyIfTheGangFits(t *testing.T) {
	s := sharedStage(t)
	for i := range 3 {
		s.node(fmt.Sprintf("n%d", i), 4, nil)
	}
	s.queue("low", "", 0)
	s.queue("safe", "", 0, protected)
	s.queue("high", "", 1)
	for _, g := range []string{"low", "safe"} {
		s.group(g, g, 1, "4")
		s.awaitBound(g, 1)
	}
	s.group("large", "high", 3, "4")
	s.awaitRefused("large", scheduling.ReasonNoRoom)
	s.awaitEvicted()
	s.group("fits", "high", 2, "4")
	s.awaitRefused("fits", scheduling.ReasonPreempting)
	s.awaitEvicted("low-0")
	s.group("next", "low", 2, "4")
	s.awaitRefused("next", scheduling.ReasonNoRoom)
	s.end("fits")
	s.remove("low-0")
	s.awaitBound("next", 2)
}
