package kindtest

import (
	"io/fs"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/kinds"
)

// Named returns the kind with the given name. It panics if there is none.
func Named(name string) *kinds.Kind {
	k, err := kinds.ByName(name)
	if err != nil {
		panic(err)
	}
	return &k
}

// Minimal returns the smallest job of a kind: one role of one replica. dir is the directory of package kinds. Each kind
// has such a job in testdata/good, in a file whose name ends in "minimal.yaml"; otherwise Minimal fails the test.
func Minimal(t testing.TB, dir fs.FS, k kinds.Kind) *unstructured.Unstructured {
	t.Helper()
	for _, m := range Manifests(t, dir, "testdata/good") {
		if !strings.HasSuffix(m.Name, "minimal") {
			continue
		}
		job := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(m.Data, &job.Object); err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if job.GetKind() == k.Name {
			return job
		}
	}
	t.Fatalf("no manifest of a %s in testdata/good has a name that ends in minimal.yaml", k.Name)
	return nil
}
