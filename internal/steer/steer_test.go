package steer

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestManifestIsWhatAUserWouldSubmit(t *testing.T) {
	stored := map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob",
		"metadata": map[string]any{
			"name": "mnist", "namespace": "ns", "uid": "1", "resourceVersion": "7", "generation": int64(2), "creationTimestamp": "2026-01-01T12:00:00Z",
			"labels": map[string]any{"team": "vision"}, "finalizers": []any{"x"}, "managedFields": []any{map[string]any{"manager": "t9k"}},
			"annotations": map[string]any{"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}", "scheduler.tensorstack.dev/requested-by": "[]"},
		},
		"spec":   map[string]any{"cleanUpPolicy": "All"},
		"status": map[string]any{"phase": "Running"},
	}
	before := (&unstructured.Unstructured{Object: stored}).DeepCopy()
	got := Manifest(&unstructured.Unstructured{Object: stored})
	want := map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob",
		"metadata": map[string]any{"name": "mnist", "namespace": "ns", "labels": map[string]any{"team": "vision"}, "annotations": map[string]any{"note": "kept"}},
		"spec":     map[string]any{"cleanUpPolicy": "All"},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, stored); diff != "" {
		t.Errorf("the stored job has changed:\n%s", diff)
	}
}

// TestCopyIsAJobOfItsOwn verifies that a copy runs at once, regardless of the mode of its original, and belongs to no
// sweep.
func TestCopyIsAJobOfItsOwn(t *testing.T) {
	stored := map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob",
		"metadata": map[string]any{
			"name": "mnist-5dp99ps1", "namespace": "ns", "uid": "1",
			"labels":      map[string]any{"team": "vision", "batch.tensorstack.dev/sweep": "mnist"},
			"annotations": map[string]any{"note": "kept", "batch.tensorstack.dev/parameters": `{"lr":"0.1"}`, "batch.tensorstack.dev/sweep-manifest": "abc"},
		},
		"spec": map[string]any{"cleanUpPolicy": "All", "runMode": map[string]any{"pause": map[string]any{"enabled": true}, "debug": map[string]any{"enable": true}}},
	}
	before := (&unstructured.Unstructured{Object: stored}).DeepCopy()
	got := CopyOf(&unstructured.Unstructured{Object: stored}, "mnist-2")
	want := map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob",
		"metadata": map[string]any{"name": "mnist-2", "namespace": "ns", "labels": map[string]any{"team": "vision"}, "annotations": map[string]any{"note": "kept"}},
		"spec":     map[string]any{"cleanUpPolicy": "All", "runMode": map[string]any{"pause": map[string]any{}, "debug": map[string]any{}}},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, stored); diff != "" {
		t.Errorf("the stored job has changed:\n%s", diff)
	}
}
