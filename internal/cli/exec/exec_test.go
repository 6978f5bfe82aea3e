package exec

import (
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestReplicaOfALargeJobCanBeSelected verifies that commands run in every job that the cluster has accepted, regardless
// of its size.
func TestReplicaOfALargeJobCanBeSelected(t *testing.T) {
	if _, _, err := replicaOf(clitest.LargeJob(t), &options{rank: 12_344}); err != nil {
		t.Errorf("selecting a replica: %v", err)
	}
}
