package manifest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/kinds"
)

// FuzzCheck reads and checks arbitrary manifests, starting with the manifests of this repository. It verifies that
// nothing panics, that no object is changed, that every error has a line of the manifest and a message, and that a job
// is converted if and only if it has no errors.
func FuzzCheck(f *testing.F) {
	addManifests(f, "../..")
	checker := &Checker{Namespace: "default", Limits: kinds.Limits{}}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, diags, err := Read("m.yaml", bytes.NewReader(data))
		if err != nil {
			return // too large
		}
		checkDiagnostics(t, data, diags)
		for _, d := range docs {
			before := d.Object.DeepCopy()
			r, err := checker.Check(t.Context(), d)
			if err != nil {
				t.Fatalf("the check failed: %v", err)
			}
			if !equal(t, before, d.Object) {
				t.Error("the object was changed")
			}
			if valid := r.Kind != nil && len(r.Errors) == 0; valid != (r.Job != nil) {
				t.Errorf("errors %v, job %v", r.Errors, r.Job)
			}
			checkDiagnostics(t, data, slices.Concat(r.Errors, r.Warnings))
		}
	})
}

// checkDiagnostics verifies that each error has the name of the manifest, one of its lines and a message.
func checkDiagnostics(t *testing.T, data []byte, diags []Diagnostic) {
	t.Helper()
	lines := bytes.Count(data, []byte("\n")) + 1
	for _, f := range diags {
		if f.File != "m.yaml" || f.Line < 1 || f.Line > lines || strings.TrimSpace(f.Message) == "" {
			t.Errorf("error %+v of a manifest of %d lines", f, lines)
		}
	}
}

func equal(t *testing.T, a, b *unstructured.Unstructured) bool {
	t.Helper()
	left, err := yaml.Marshal(a.Object)
	if err != nil {
		t.Fatal(err)
	}
	right, err := yaml.Marshal(b.Object)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(left, right)
}

// addManifests adds all manifests below a directory, except those in directories that builds write.
func addManifests(f *testing.F, root string) {
	f.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, d.Name()) {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".yml") {
			return err
		}
		data, err := os.ReadFile(path)
		f.Add(data)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
}
