package scale

import (
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestLargeJobCanBeScaled verifies that scale does not apply the default limit of replicas to a job that the cluster
// has accepted: it refuses this job only because the job is not elastic.
func TestLargeJobCanBeScaled(t *testing.T) {
	if _, err := scalable(clitest.LargeJob(t)); err == nil || !strings.Contains(err.Error(), "is not elastic") {
		t.Errorf("scaling: %v", err)
	}
}
