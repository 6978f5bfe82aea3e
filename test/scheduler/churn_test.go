package scheduler

import (
	"flag"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

var churns = flag.Int("churns", 15, "how often TestChurn takes everything away from under the scheduler")

// TestChurn takes gangs, their PodGroups and the nodes away while pods are being bound, in random order. The scheduler neither ends
// nor keeps room for what is gone: after each round a gang that needs all of a new cluster runs.
func TestChurn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	random := seeded(t)
	now := client.GracePeriodSeconds(0)
	for round := range *churns {
		for i := range 4 {
			s.node(fmt.Sprintf("n%d-%d", round, i), 8, nil)
		}
		for i := range 6 {
			s.group(fmt.Sprintf("g%d-%d", round, i), "default", 1+random.IntN(8), "2")
		}
		away := []client.Object{&corev1.Pod{}, &scheduling.PodGroup{}, &corev1.Node{}}
		random.Shuffle(len(away), func(i, j int) { away[i], away[j] = away[j], away[i] })
		for _, o := range away {
			options := []client.DeleteAllOfOption{now}
			if _, ok := o.(*corev1.Node); !ok {
				options = append(options, client.InNamespace(s.namespace))
			}
			s.must(s.client.DeleteAllOf(t.Context(), o, options...))
		}
		for i := range 2 {
			s.node(fmt.Sprintf("m%d-%d", round, i), 8, nil)
		}
		last := fmt.Sprintf("last%d", round)
		s.group(last, "default", 4, "4")
		s.awaitBound(last, 4)
		s.end(last)
		s.must(s.client.DeleteAllOf(t.Context(), &corev1.Node{}))
	}
	s.checkAlive()
}

// checkAlive: the scheduler has not ended by itself.
func (s *stage) checkAlive() {
	s.Helper()
	status, err := s.env.Status()
	s.must(err)
	for _, c := range status.Components {
		if c.Restarts > 0 {
			s.Errorf("%s was started again %d times", c.Name, c.Restarts)
		}
	}
}
