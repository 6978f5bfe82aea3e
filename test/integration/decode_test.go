package integration

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/await"
)

// TestGoTypesHoldAllValuesThatCRDsAccept verifies that the Go types can decode all values that the CRDs accept. A
// single object that a typed client cannot decode would block the operator for all jobs, because the client cannot
// decode a list that contains it. At each place of the schema, the test tries values that some Go type cannot hold.
func TestGoTypesHoldAllValuesThatCRDsAccept(t *testing.T) {
	w := newWorld(t)
	raw, err := dynamic.NewForConfig(w.Env.Config)
	w.Must(err)
	for _, k := range kinds.All {
		t.Run(k.Name, func(t *testing.T) { w.in(t).checkReadable(raw, k) })
	}
}

func (w *world) checkReadable(raw dynamic.Interface, k kinds.Kind) {
	t := w.T
	resource := raw.Resource(batch.GroupVersion.WithResource(k.Plural)).Namespace(w.Namespace)
	accepted, refused := 0, 0
	for _, c := range candidates(t, k) {
		body := merge(map[string]any{
			"apiVersion": batch.GroupVersion.String(), "kind": k.Name, "metadata": map[string]any{"name": "job"},
			"spec": map[string]any{"replicaSpecs": []any{map[string]any{"type": "worker", "template": map[string]any{
				"spec": map[string]any{"containers": []any{map[string]any{"name": "tensorflow", "image": "x"}}}}}}},
		}, c.object)
		data, err := json.Marshal(body)
		w.Must(err)
		object := &unstructured.Unstructured{}
		w.Must(object.UnmarshalJSON(data))
		stored, err := resource.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.path, err)
		}
		accepted++
		data, err = stored.MarshalJSON()
		w.Must(err)
		read := make(chan error, 1)
		go func() { read <- json.Unmarshal(data, k.New()) }()
		select {
		case err := <-read:
			if err != nil {
				t.Errorf("%s accepts %v: %v", c.path, c.value, err)
			}
		case <-time.After(await.Patience): // parsing such a quantity takes years
			t.Fatalf("%s accepts %v, which takes too long to decode", c.path, c.value)
		}
	}
	if accepted < 100 || refused < 100 {
		t.Errorf("%d values were accepted and %d refused: too few to prove anything", accepted, refused)
	}
}

// candidate is a value to try at one place of the schema, in an otherwise minimal object.
type candidate struct {
	path   string
	value  any
	object map[string]any
}

// candidates returns values for each place in the spec of a job's schema that accepts numbers or formatted strings.
func candidates(t *testing.T, k kinds.Kind) []candidate {
	t.Helper()
	data, err := os.ReadFile("../../config/crd/batch.tensorstack.dev_" + k.Plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	var all []candidate
	walk(child(root, "properties", "spec"), "spec", func(v any) map[string]any { return map[string]any{"spec": v} }, &all)
	return all
}

// walk adds the candidates of a schema and of the schemas in it. build returns the object with a value at path.
func walk(schema map[string]any, path string, build func(any) map[string]any, all *[]candidate) {
	for _, value := range valuesFor(schema) {
		*all = append(*all, candidate{path, value, build(value)})
	}
	if items := child(schema, "items"); items != nil {
		walk(items, path+"[]", func(v any) map[string]any { return build([]any{v}) }, all)
		for _, value := range valuesFor(items) { // some rules check the first and the last entry of a list
			*all = append(*all, candidate{path + "[1]", value, build([]any{minimal(items), value, minimal(items)})})
		}
	}
	if values := child(schema, "additionalProperties"); values != nil {
		walk(values, path+".w", func(v any) map[string]any { return build(map[string]any{"w": v}) }, all)
	}
	properties := child(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		walk(child(properties, name), path+"."+name, func(v any) map[string]any {
			o := minimal(schema).(map[string]any)
			o[name] = v
			return build(o)
		}, all)
	}
}

func valuesFor(schema map[string]any) []any {
	switch {
	case schema["x-kubernetes-int-or-string"] == true:
		return []any{json.Number("2147483648"), json.Number("-2147483649"), json.Number("1e300"), json.Number("7"), "7",
			"1e1.5", "1e9999999999", "1e-9999999", strings.Repeat("9", 64)}
	case schema["type"] == "integer":
		return []any{json.Number("2147483648"), json.Number("-9223372036854775809")}
	case schema["type"] == "string" && schema["format"] != nil:
		return []any{"2020-01-01T00:00:00", "2020-01-01", "x", ""}
	}
	return nil
}

// minimal returns a small value of a schema's type: objects have only their required fields, lists are empty, and
// numbers are 0. It takes no account of the schema's bounds, patterns and CEL rules.
func minimal(schema map[string]any) any {
	switch schema["type"] {
	case "object":
		o := map[string]any{}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			o[name.(string)] = minimal(child(schema, "properties", name.(string)))
		}
		return o
	case "array":
		return []any{}
	case "integer", "number":
		return 0
	case "boolean":
		return false
	}
	if enum, ok := schema["enum"].([]any); ok {
		return enum[0]
	}
	if schema["x-kubernetes-int-or-string"] == true {
		return 0
	}
	return "worker"
}

func child(schema map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		schema, _ = schema[key].(map[string]any)
	}
	return schema
}

// merge copies the values of the tree over into the tree under, recursively, and returns under. It merges lists by
// index. If both trees have a value, the value in over wins.
func merge(under, over map[string]any) map[string]any {
	for key, value := range over {
		under[key] = mergeValue(under[key], value)
	}
	return under
}

func mergeValue(under, over any) any {
	switch o := over.(type) {
	case map[string]any:
		if u, ok := under.(map[string]any); ok {
			return merge(u, o)
		}
	case []any:
		u, _ := under.([]any)
		merged := slices.Clone(o)
		for i := range min(len(u), len(o)) {
			merged[i] = mergeValue(u[i], o[i])
		}
		if len(u) > len(o) {
			merged = append(merged, u[len(o):]...)
		}
		return merged
	}
	return over
}
