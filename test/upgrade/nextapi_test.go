package upgrade

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/kinds"
)

// nextAPI returns a release with the given version and with the programs of r. Its chart is a copy of the chart of r in
// which the kinds of job have one more optional field in their spec.
func nextAPI(t *testing.T, r release, version string) release {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t9k-batch")
	if err := os.CopyFS(dir, os.DirFS(r.chart)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "files", "crd", "batch.*.yaml"))
	if err != nil || len(files) < len(kinds.All) {
		t.Fatalf("%d CRDs in the chart: %v", len(files), err)
	}
	for _, file := range files {
		addField(t, file)
	}
	return release{version: version, chart: dir, programs: r.programs, pods: r.pods}
}

// newField is the name of the field that nextAPI adds.
const newField = "addedLater"

func addField(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	schema := versions[0].(map[string]any)
	if err := unstructured.SetNestedField(schema, "string", "schema", "openAPIV3Schema", "properties", "spec", "properties", newField, "type"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if data, err = yaml.Marshal(crd.Object); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
