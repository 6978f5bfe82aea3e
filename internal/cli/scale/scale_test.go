package scale

import (
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// What the cluster has taken is not refused for its size.
func TestSizeOfALargeJob(t *testing.T) {
	if _, err := scalable(clitest.LargeJob(t)); err == nil || !strings.Contains(err.Error(), "is not elastic") {
		t.Errorf("scaling: %v", err)
	}
}
