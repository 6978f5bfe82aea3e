package selection

import (
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestReplicaOfALargeJobCanBeSelected verifies that replicas of every job that the cluster has accepted can be
// selected, regardless of its size.
func TestReplicaOfALargeJobCanBeSelected(t *testing.T) {
	if s, err := New(clitest.LargeJob(t), Options{Ranks: []string{"12344"}}); err != nil || len(s.Replicas()) != 1 {
		t.Errorf("selecting a replica: %v", err)
	}
}
