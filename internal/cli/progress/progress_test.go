package progress

import (
	"bytes"
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds/kindtest"
	"tensorstack.dev/batch/internal/observed"
)

// TestInterruptAtTheEndReportsTheResult verifies that Ctrl-C does not change the result when the last job has just
// finished.
func TestInterruptAtTheEndReportsTheResult(t *testing.T) {
	var out bytes.Buffer
	p := kit.New("t9k", genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	raw := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob",
		"metadata": map[string]any{"name": "mnist", "namespace": "team"},
		"status": map[string]any{"phase": "Succeeded", "conditions": []any{
			map[string]any{"type": "Completed", "status": string(metav1.ConditionTrue), "reason": "SuccessRuleMet", "message": "All have succeeded."},
		}},
	}}
	j, err := observed.New(kindtest.Named("GenericJob"), raw)
	if err != nil {
		t.Fatal(err)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := Watch(interrupted, p, &kit.Cluster{}, []*kit.Job{j}, Options{}); err != nil {
		t.Errorf("Watch: %v", err)
	}
	if !strings.Contains(out.String(), "genericjob/mnist Succeeded") || strings.Contains(out.String(), "Stopped following") {
		t.Errorf("it wrote:\n%s", &out)
	}
}
