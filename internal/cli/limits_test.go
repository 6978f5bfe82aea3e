package cli

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/kinds"
)

// How large a job may be is for the cluster to say: what it has taken can be logged, described and scaled, and what it may
// take is not refused before it is asked.
func TestJobsLargerThanTheUsualLimit(t *testing.T) {
	j, err := newJob(&kinds.All[0], &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": map[string]any{"name": "large"},
		"spec": map[string]any{"replicaSpecs": []any{map[string]any{"type": "worker", "replicas": int64(12_345), "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if sel, err := newSelection(j, &logsOptions{ranks: []string{"12344"}}); err != nil || len(sel.replicas()) != 1 {
		t.Errorf("selecting a replica for logs: %v", err)
	}
	if _, _, err := replicaOf(j, &execOptions{rank: 12_344}); err != nil {
		t.Errorf("selecting a replica for exec: %v", err)
	}
	if _, err := j.scalable(); err == nil || !strings.Contains(err.Error(), "is not elastic") {
		t.Errorf("scaling: %v", err)
	}

	manifest, err := j.raw.MarshalJSON()
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
