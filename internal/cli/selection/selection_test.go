package selection

import (
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// What the cluster has taken can be selected, however large it is.
func TestReplicaOfALargeJob(t *testing.T) {
	if s, err := New(clitest.LargeJob(t), Options{Ranks: []string{"12344"}}); err != nil || len(s.Replicas()) != 1 {
		t.Errorf("selecting a replica: %v", err)
	}
}
