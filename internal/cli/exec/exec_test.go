package exec

import (
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestReplicaOfALargeJobCanBeSelected verifies that replicaOf does not apply the default limit of replicas to a job
// that the cluster has accepted.
func TestReplicaOfALargeJobCanBeSelected(t *testing.T) {
	if _, _, err := replicaOf(clitest.LargeJob(t), &options{rank: 12_344}); err != nil {
		t.Errorf("selecting a replica: %v", err)
	}
}
