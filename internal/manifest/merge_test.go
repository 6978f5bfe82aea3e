package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWrongTypeHidesErrorsThatDependOnIt verifies that, for a value of a wrong type in a manifest without other errors,
// all errors reported are about this value, one of its parents or one of its parts: fields that depend on the value are
// not checked.
func TestWrongTypeHidesErrorsThatDependOnIt(t *testing.T) {
	files, err := filepath.Glob("../kinds/testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	checker := Checker{Namespace: "default"}
	values := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs, diags, err := Read(filepath.Base(file), bytes.NewReader(data))
		if err != nil || len(diags) > 0 {
			t.Fatal(err, diags)
		}
		for _, d := range docs {
			object := d.Object
			for _, path := range pathsOf("", object.Object) {
				if top, _, _ := strings.Cut(path, "."); top != "spec" && path != "metadata.name" && path != "metadata.namespace" {
					continue
				}
				d.Object = object.DeepCopy()
				value, _ := lookUp(d.Object.Object, path)
				if !replace(d.Object.Object, path, wrongFor(value)) {
					t.Fatalf("%s has no %s", file, path)
				}
				r, err := checker.Check(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				values++
				for _, f := range r.Errors {
					if at, of := plain(f.Path), plain(path); !within(at, of) && !within(of, at) {
						t.Errorf("%v in place of %s: %s", wrongFor(value), path, f)
					}
				}
			}
		}
	}
	if values < 500 {
		t.Errorf("only %d values were tried", values)
	}
}

// pathsOf returns the paths of all values inside a value.
func pathsOf(path string, value any) []string {
	var all []string
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			at := strings.TrimPrefix(path+"."+name, ".")
			all = append(append(all, at), pathsOf(at, v[name])...)
		}
	case []any:
		for i := range v {
			at := fmt.Sprintf("%s[%d]", path, i)
			all = append(append(all, at), pathsOf(at, v[i])...)
		}
	}
	return slices.Clip(all)
}

// wrongFor returns a value of a type other than that of the given value.
func wrongFor(value any) any {
	switch value.(type) {
	case map[string]any, []any:
		return "wrong"
	}
	return map[string]any{"wrong": "type"}
}
