package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
)

// TestJobReportsThatItsQueueIsTooSmall verifies that a job that exceeds its queue's quota reports it, that `t9k run
// --fail-if-impossible` then fails, and that the job starts when the quota is raised.
func TestJobReportsThatItsQueueIsTooSmall(t *testing.T) {
	s := newSpace(t)
	q := s.queue("q", "50m")
	j := s.gang("large", q, requesting(role("w", 2, gate.Obey), "30m"))
	j.Namespace = s.Namespace
	j.SetGroupVersionKind(batch.GroupVersion.WithKind("GenericJob"))
	text, err := yaml.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := s.t9k(t.Context(), &out, &errs, "run", "-f", file, "--fail-if-impossible"); code != 1 {
		t.Errorf("t9k run ends with %d", code)
	}
	for _, part := range []string{"genericjob/large can never start with the present quota and nodes", "60m cpu needed, 50m in the quota, 10m short", "t9k delete genericjob/large"} {
		if !strings.Contains(errs.String(), part) {
			t.Errorf("the output of t9k run lacks %q:\n%s%s", part, &out, &errs)
		}
	}
	s.awaitWaits("large", scheduling.ReasonImpossible, "raise the quota to 60m cpu")
	s.awaitEvent("large", batch.ReasonImpossible, "60m cpu needed")
	s.checkOutput([]string{"describe", "large"}, "60m cpu needed")
	s.editQueue(q, quotaOf("60m"))
	s.awaitPhase("large", batch.JobRunning)
	s.finish("large", "w", 2)
}
