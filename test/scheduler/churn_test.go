package scheduler

import (
	"flag"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
)

var churns = flag.Int("churns", 6, "number of rounds of TestSchedulerSurvivesDeletionsWhileBinding")

// TestSchedulerSurvivesDeletionsWhileBinding verifies that the scheduler neither exits nor keeps room for deleted
// objects if pods, PodGroups and nodes are deleted in random order while it binds pods. At the end of each round, a
// gang that needs all new nodes must start.
func TestSchedulerSurvivesDeletionsWhileBinding(t *testing.T) {
	s := quietStage(t)
	s.queue("q", "", 0)
	before := s.restarts()
	random := seeded(t)
	now := client.GracePeriodSeconds(0)
	for round := range *churns {
		for i := range 4 {
			s.node(fmt.Sprintf("n%d-%d", round, i), 8, nil)
		}
		for i := range 6 {
			s.group(fmt.Sprintf("g%d-%d", round, i), "q", 1+random.IntN(8), "2")
		}
		away := []client.Object{&corev1.Pod{}, &scheduling.PodGroup{}, &corev1.Node{}}
		random.Shuffle(len(away), func(i, j int) { away[i], away[j] = away[j], away[i] })
		for _, o := range away {
			if _, ok := o.(*corev1.Node); ok {
				s.removeNodes()
				continue
			}
			s.Must(s.Client.DeleteAllOf(t.Context(), o, now, client.InNamespace(s.Namespace)))
		}
		for i := range 2 {
			s.node(fmt.Sprintf("m%d-%d", round, i), 8, nil)
		}
		last := fmt.Sprintf("last%d", round)
		s.group(last, "q", 4, "4")
		s.awaitBound(last, 4)
		s.end(last)
		s.removeNodes()
	}
	if after := s.restarts(); after != before {
		t.Errorf("the scheduler restarted %d times", after-before)
	}
}

func (s *stage) removeNodes() {
	s.Helper()
	s.Must(s.Client.DeleteAllOf(s.Context(), &corev1.Node{}, client.MatchingLabels{labelStage: s.Namespace}))
}

// restarts returns how often the scheduler has been restarted.
func (s *stage) restarts() int {
	s.Helper()
	status, err := s.Env.Status()
	s.Must(err)
	for _, c := range status.Components {
		if c.Name == local.Scheduler {
			return c.Restarts
		}
	}
	return 0
}
