// Package clitest provides helpers for the tests of the verbs.
package clitest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// LargeJob returns a job with more replicas than admission accepts by default. A cluster accepts the job if its
// operator is configured with a higher limit.
func LargeJob(t testing.TB) *kit.Job {
	t.Helper()
	k, err := kinds.ByName("GenericJob")
	if err != nil {
		t.Fatal(err)
	}
	j, err := observed.New(&k, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": map[string]any{"name": "large"},
		"spec": map[string]any{"replicaSpecs": []any{map[string]any{"type": "worker", "replicas": int64(12_345), "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return j
}
