// Package clitest is what tests of the verbs share.
package clitest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds"
)

// LargeJob is a job with more replicas than admission takes by itself; the operator of a cluster may take them.
func LargeJob(t testing.TB) *kit.Job {
	t.Helper()
	j, err := kit.NewJob(&kinds.All[0], &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch.tensorstack.dev/v1beta1", "kind": "GenericJob", "metadata": map[string]any{"name": "large"},
		"spec": map[string]any{"replicaSpecs": []any{map[string]any{"type": "worker", "replicas": int64(12_345), "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return j
}
