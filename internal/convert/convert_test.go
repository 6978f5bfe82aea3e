package convert

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/testing/golden"
)

//go:embed testdata
var testdata embed.FS

func read(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := testdata.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	// Decode from JSON, because the code expects whole numbers as int64.
	if data, err = yaml.YAMLToJSON(data); err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := fs.Glob(testdata, pattern)
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: no files: %v", pattern, err)
	}
	return all
}

// normalOf decodes a converted job strictly, validates it, and returns it with its engine.Job.
func normalOf(t *testing.T, u *unstructured.Unstructured) (kinds.Object, *engine.Job) {
	t.Helper()
	kind, err := kinds.ByName(u.GetKind())
	if err != nil {
		t.Fatal(err)
	}
	object := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, object, true); err != nil {
		t.Fatalf("the result has fields that %s lacks: %v", u.GetKind(), err)
	}
	if object.GetName() == "" {
		object.SetName(object.GetGenerateName() + "xxxxx")
	}
	if errs := kind.Validate(object, kinds.Limits{}); len(errs) > 0 {
		t.Fatalf("the result is not valid: %v", errs.ToAggregate())
	}
	return object, kind.Convert(object)
}

func TestJobIsConverted(t *testing.T) {
	for _, file := range files(t, "testdata/*.yaml") {
		t.Run(path.Base(file), func(t *testing.T) {
			from := read(t, file)
			before := from.DeepCopy()
			to, notes, err := Job(from)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(before.Object) != fmt.Sprint(from.Object) {
				t.Error("the manifest was changed")
			}
			normalOf(t, to)
			text, err := yaml.Marshal(to.Object)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, n := range notes {
				fmt.Fprintf(&b, "# %s\n", n)
			}
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".txt", b.String()+string(text))
		})
	}
}

func TestJobRefusesWhatItCannotConvert(t *testing.T) {
	for _, file := range files(t, "testdata/bad/*.yaml") {
		t.Run(path.Base(file), func(t *testing.T) {
			to, _, err := Job(read(t, file))
			var refusal Error
			if !errors.As(err, &refusal) || to != nil {
				t.Fatalf("%v and %v", to, err)
			}
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

// TestLauncherVariablesResolve verifies that the variables for a torchrun in a shell come after the operator's
// variables, to which they refer.
func TestLauncherVariablesResolve(t *testing.T) {
	to, _, err := Job(read(t, "testdata/pytorch-torchrun-options.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, job := normalOf(t, to)
	spec := job.Roles[1].Template.Spec.DeepCopy()
	job.Roles[1].Expand(0, spec)
	known := map[string]string{}
	for _, v := range spec.Containers[0].Env {
		value := v.Value
		for name, of := range known {
			value = strings.ReplaceAll(value, "$("+name+")", of)
		}
		known[v.Name] = value
	}
	for name, want := range map[string]string{
		"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "llm-master-0", "PET_MASTER_PORT": "29500",
	} {
		if known[name] != want {
			t.Errorf("%s is %q, want %q", name, known[name], want)
		}
	}
}

// TestJobLosesNothing verifies that a field that is added anywhere in a manifest is in the result or named in a note. A
// note that leaves out a part that contains the field suffices, and so does an error about the field or such a part.
func TestJobLosesNothing(t *testing.T) {
	const strange = "strangeField"
	tried := 0
	for _, file := range files(t, "testdata/*.yaml") {
		from := read(t, file)
		for _, at := range mapsIn(from.Object, nil) {
			changed := from.DeepCopy()
			set(changed.Object, at, strange)
			to, notes, err := Job(changed)
			reported := ""
			for _, n := range notes {
				// A note about a removed part does not name the fields in it.
				if strings.Contains(n.Path, strange) || strings.HasPrefix(pathTo(at), n.Path) && strings.HasPrefix(n.Message, "left out") {
					reported += strange
				}
			}
			var refused Error
			if errors.As(err, &refused) && strings.HasPrefix(pathTo(at)+"."+strange, refused[0].Path) {
				reported += strange
			}
			if to != nil {
				text, _ := yaml.Marshal(to.Object)
				reported += string(text)
			}
			if !strings.Contains(reported, strange) {
				t.Errorf("%s: %s in %s is lost", file, strange, pathTo(at))
			}
			tried++
		}
	}
	if tried < 200 {
		t.Errorf("only %d places were tried", tried)
	}
}

// mapsIn returns the paths of all maps in a value, including the value itself.
func mapsIn(v any, at []any) [][]any {
	var all [][]any
	switch v := v.(type) {
	case map[string]any:
		all = append(all, at)
		for key := range v {
			all = append(all, mapsIn(v[key], append(slices.Clone(at), key))...)
		}
	case []any:
		for i := range v {
			all = append(all, mapsIn(v[i], append(slices.Clone(at), i))...)
		}
	}
	return all
}

// set sets a field in the map at a path.
func set(v any, at []any, field string) {
	for _, step := range at {
		switch step := step.(type) {
		case string:
			v = v.(map[string]any)[step]
		case int:
			v = v.([]any)[step]
		}
	}
	v.(map[string]any)[field] = "1"
}

func pathTo(at []any) string {
	var b strings.Builder
	for _, step := range at {
		switch step := step.(type) {
		case string:
			b.WriteString("." + step)
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}
