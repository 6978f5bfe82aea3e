package exec

import (
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestReplicaOfALargeJobCanBeSelected verifies that commands run in any job that the cluster has accepted, however
// large it is.
func TestReplicaOfALargeJobCanBeSelected(t *testing.T) {
	if _, _, err := replicaOf(clitest.LargeJob(t), &options{rank: 12_344}); err != nil {
		t.Errorf("selecting a replica: %v", err)
	}
}
