package cli

import (
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/cli/clitest"
)

// TestJobsAboveTheDefaultLimitAreSent verifies that "run" does not refuse a job above the default limit, because the
// cluster enforces its own limit, and that "validate" refuses it.
func TestJobsAboveTheDefaultLimitAreSent(t *testing.T) {
	manifest, err := clitest.LargeJob(t).Raw.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := call(t, string(manifest), "run", "-f", "-"); code != 1 || !strings.Contains(errOut, "no cluster") {
		t.Errorf("run: exit code %d: %s", code, errOut)
	}
	if out, _, code := call(t, string(manifest), "validate", "-f", "-"); code != 1 || !strings.Contains(out, "have the operator's limit raised") {
		t.Errorf("validate: exit code %d: %s", code, out)
	}
}
