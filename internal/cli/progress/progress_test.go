package progress

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"tensorstack.dev/batch/internal/archive"
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

// TestLastLog verifies that the last log of a replica is that of its newest pod with output.
func TestLastLog(t *testing.T) {
	log := func(created, attempt int, container, text string) archive.LogText {
		return archive.LogText{Created: time.Unix(int64(created), 0), Attempt: attempt, Container: container, Text: text}
	}
	for want, logs := range map[string][]archive.LogText{
		"":               {log(1, 0, "main", ""), log(2, 1, "sidecar", "noise")},
		"second":         {log(1, 0, "main", "first"), log(2, 1, "main", "second"), log(2, 1, "sidecar", "noise"), log(3, 2, "main", "")},
		"scaled back":    {log(5, 0, "main", "scaled back"), log(1, 0, "main", "first"), log(2, 1, "main", "second")},
		"init":           {log(1, 0, "main", "first"), log(2, 1, "fetch", "init")},
		"by its numbers": {log(0, 1, "main", "by its numbers"), log(0, 0, "main", "first")},
	} {
		got := ""
		if l := lastLog(logs, []string{"fetch", "main"}); l != nil {
			got = l.Text
		}
		if got != want {
			t.Errorf("the last log is %q, want %q", got, want)
		}
	}
}
