package scale

import (
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestLargeJobCanBeScaled verifies that every elastic job that the cluster has accepted can be scaled, regardless of
// its size.
func TestLargeJobCanBeScaled(t *testing.T) {
	if _, err := scalable(clitest.LargeJob(t)); err == nil || !strings.Contains(err.Error(), "is not elastic") {
		t.Errorf("scaling: %v", err)
	}
}
