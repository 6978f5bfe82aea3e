package kindtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// Job converts the first job of a manifest, which must be valid. The job always has the same UID, and the namespace
// "default" if the manifest names none.
func Job(t testing.TB, manifest []byte) *engine.Job {
	t.Helper()
	objects, err := Decode(manifest)
	if err != nil {
		t.Fatal(err)
	}
	o := objects[0]
	k, err := kinds.ByName(o.GetObjectKind().GroupVersionKind().Kind)
	if err != nil {
		t.Fatal(err)
	}
	if o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	o.SetUID("d9a1b2c3-0000-4000-8000-000000000001")
	if errs := k.Validate(o, kinds.Limits{}); len(errs) > 0 {
		t.Fatalf("refused: %v", errs)
	}
	return k.Convert(o)
}

// Created returns the objects, in order, that the engine creates for a job that has the given status and no objects
// yet.
func Created(job *engine.Job, status *batch.JobStatus) []engine.Object {
	seen := engine.Seen{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Status: status}
	plan := engine.Next(job, seen, engine.Config{})
	return slices.Collect(plan.Objects(job))
}

// Pods returns the pods among the objects that Created returns.
func Pods(job *engine.Job, status *batch.JobStatus) []engine.Object {
	return slices.DeleteFunc(Created(job, status), func(o engine.Object) bool {
		_, isPod := o.(*corev1.Pod)
		return !isPod
	})
}

// YAML returns the objects as YAML documents.
func YAML(t testing.TB, objects []engine.Object) string {
	t.Helper()
	documents := make([]string, len(objects))
	for i, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		documents[i] = string(data)
	}
	return strings.Join(documents, "---\n")
}
