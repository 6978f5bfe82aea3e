package convert

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// FuzzJob verifies for arbitrary manifests, starting with the jobs of the tests, that the conversion never panics, does
// not modify the manifest and returns either a result or an error, and that each note and each error names a field.
func FuzzJob(f *testing.F) {
	for _, dir := range []string{"testdata", "testdata/bad"} {
		entries, err := testdata.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if data, err := testdata.ReadFile(dir + "/" + entry.Name()); err == nil {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		from := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON(data)
		if err != nil || from.UnmarshalJSON(text) != nil {
			return
		}
		before := from.DeepCopy()
		to, notes, err := Job(from)
		if fmt.Sprint(before.Object) != fmt.Sprint(from.Object) {
			t.Error("the manifest was changed")
		}
		if (to == nil) == (err == nil) {
			t.Errorf("the result is %v with the error %v", to, err)
		}
		refusal, ok := err.(Error) //nolint:errorlint // Job documents the type Error
		if err != nil && (!ok || len(refusal) == 0) {
			t.Errorf("the error is %T", err)
		} else {
			notes = append(notes, refusal...)
		}
		for _, n := range notes {
			if n.Path == "" || n.Message == "" {
				t.Errorf("a note must name a field and say what happens to it: %+v", n)
			}
		}
	})
}
