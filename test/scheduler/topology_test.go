package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// zonesOf returns, by zone, the number of nodes on which a group has pods.
func (s *stage) zonesOf(group string) map[string]int {
	s.Helper()
	zones := map[string]int{}
	for _, name := range s.nodesOf(group) {
		n := &corev1.Node{}
		n.Name = s.own(name)
		s.Must(s.Client.Get(s.Context(), keyOf(n), n))
		zones[n.Labels[topologyLabel]]++
	}
	return zones
}

// TestGangIsPlacedByTopology verifies the placement of gangs under each topology policy. Zone a has one node, zone b
// three nodes and zone c two nodes. Each node has room for one pod.
func TestGangIsPlacedByTopology(t *testing.T) {
	tests := map[string]struct {
		policy scheduling.TopologyPolicy
		n      int
		zones  int // 0 if the group waits
	}{
		"required, fits in one":                      {scheduling.TopologyRequired, 3, 1},
		"required, does not fit in one":              {scheduling.TopologyRequired, 4, 0},
		"best effort, fits in one":                   {scheduling.TopologyBestEffort, 3, 1},
		"best effort, fits in no fewer than two":     {scheduling.TopologyBestEffort, 5, 2},
		"best effort, does not fit in all":           {scheduling.TopologyBestEffort, 7, 0},
		"no preference, fits in no fewer than three": {"", 6, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := sharedStage(t)
			for i, zone := range []string{"a", "b", "c", "b", "c", "b"} {
				s.node(fmt.Sprintf("n%d", i), 1, map[string]string{topologyLabel: s.own(zone)})
			}
			s.queue("q", "", 0)
			s.podGroup("g", "q", test.n, func(g *scheduling.PodGroupSpec) { g.TopologyPolicy = test.policy })
			s.members("g", "q", test.n, "1")
			if test.zones == 0 {
				s.awaitRefused("g", scheduling.ReasonImpossible)
				return
			}
			s.awaitBound("g", test.n)
			if zones := s.zonesOf("g"); len(zones) != test.zones {
				t.Errorf("the gang is in zones %v, want %d", zones, test.zones)
			}
		})
	}
}

// TestReplacementStaysInTheGangsZone verifies that a replacement is bound in the zone of its gang even if another zone
// has more room, and that a further pod of the gang waits if the zone is full.
func TestReplacementStaysInTheGangsZone(t *testing.T) {
	s := sharedStage(t)
	s.node("n0", 2, map[string]string{topologyLabel: s.own("a")})
	s.queue("q", "", 0)
	s.podGroup("g", "q", 2, func(g *scheduling.PodGroupSpec) { g.TopologyPolicy = scheduling.TopologyRequired })
	s.members("g", "q", 2, "1")
	s.awaitBound("g", 2)
	s.node("n1", 50, map[string]string{topologyLabel: s.own("b")})
	s.remove("g-1")
	s.member("g-1b", "g", "q", "1")
	if node := s.awaitPod("g-1b"); node != "n0" {
		t.Errorf("the replacement is on %s", node)
	}
	s.member("g-2", "g", "q", "1")
	s.Await("the scheduler reports that the group's zone is full", func() error {
		for _, p := range s.pods("g") {
			if p.Name == "g-2" && scheduledCondition(&p).Message == "" {
				return fmt.Errorf("the pod has no condition")
			}
		}
		return nil
	})
	if n := s.bound("g"); n != 2 {
		t.Errorf("%d pods are bound", n)
	}
}
