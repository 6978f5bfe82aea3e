package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxWrongValues limits the number of values of a wrong type that are reported for one object.
const maxWrongValues = 50

// checkBuiltIn reports unknown fields and values of a wrong type in an object of Kubernetes itself. A decoder stops at
// the first value of a wrong type. checkBuiltIn therefore removes that value and decodes the rest again.
func (r *Result) checkBuiltIn() {
	u := r.Object.DeepCopy()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for range maxWrongValues {
		data, err := u.MarshalJSON()
		if err != nil {
			r.report("", err.Error())
			return
		}
		_, _, err = decoder.Decode(data, nil, nil)
		strict, ok := runtime.AsStrictDecodingError(err)
		if ok {
			for _, e := range strict.Errors() {
				r.unknownField(e)
			}
			return
		}
		if err == nil || !r.wrongValue(u, err) {
			return
		}
	}
}

// unknownField reports a strict decoder's error: at the path of the field if a field is unknown, otherwise without a
// path.
func (r *Result) unknownField(err error) {
	if path, ok := strings.CutPrefix(err.Error(), `unknown field "`); ok {
		r.report(strings.TrimSuffix(path, `"`), "unknown field")
		return
	}
	r.report("", err.Error())
}

// wrongValue reports a decoder's error about a value and removes the value from the object. It returns false if it
// cannot find the value.
func (r *Result) wrongValue(u *unstructured.Unstructured, err error) bool {
	if errors.Is(err, resource.ErrFormatWrong) {
		return r.wrongQuantities(u, "", u.Object)
	}
	wrong := wrongType(err)
	if wrong == nil {
		r.report("", strings.Join(strings.Fields(err.Error()), " "))
		return false
	}
	path := wrong.Field
	if r.at != nil && r.at.root != nil {
		value := r.at.root
		if r.Path != nil {
			_, value, _ = find(value, value, r.Path.String())
		}
		if full, ok := search(value, strings.Split(path, "."), func(n *yamlnode.Node) bool { return isJSON(n, wrong.Value) }); ok {
			path = strings.TrimPrefix(full, ".")
		}
	}
	r.report(path, fmt.Sprintf("cannot be %s: write %s", article(wrong.Value), wanted(wrong.Type.String())))
	return remove(u.Object, path)
}

// wrongType returns a decoder's error about a value of a wrong type; nil for any other error.
func wrongType(err error) *json.UnmarshalTypeError {
	var wrong *json.UnmarshalTypeError
	// If Value has more than one word, for example "number 1.5", the type is right and the value is wrong.
	if !errors.As(err, &wrong) || wrong.Field == "" || strings.Contains(wrong.Value, " ") {
		return nil
	}
	return wrong
}

// isJSON reports whether a node is a value of a JSON type, given the decoder's name for the type.
func isJSON(n *yamlnode.Node, kind string) bool {
	switch kind {
	case "object":
		return n.Kind == yamlnode.MappingNode
	case "array":
		return n.Kind == yamlnode.SequenceNode
	case "string":
		return n.Kind == yamlnode.ScalarNode && n.Tag == "!!str"
	case "bool":
		return n.Kind == yamlnode.ScalarNode && n.Tag == "!!bool"
	case "number":
		return n.Kind == yamlnode.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
	}
	return n.Kind == yamlnode.ScalarNode
}

func article(kind string) string {
	if kind == "object" || kind == "array" {
		return "an " + kind
	}
	return "a " + kind
}

// wanted returns a readable name for the values of a Go type.
func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "map["):
		return "a mapping"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a string: quote it"
	}
	return "a mapping of fields"
}

// quantityMaps are the fields in Kubernetes' objects whose values are quantities.
var quantityMaps = []string{"requests", "limits", "capacity", "hard", "overhead", "max", "min", "default", "defaultRequest"}

// wrongQuantities reports strings inside value that must be quantities and are not, and removes them. path is the path
// of value. It returns whether it has found any.
func (r *Result) wrongQuantities(u *unstructured.Unstructured, path string, value any) (found bool) {
	switch v := value.(type) {
	case []any:
		for i := range v {
			found = r.wrongQuantities(u, path+"["+strconv.Itoa(i)+"]", v[i]) || found
		}
	case map[string]any:
		for _, name := range sortedNames(v) {
			at := strings.TrimPrefix(path+"."+name, ".")
			text, isText := v[name].(string)
			if _, err := resource.ParseQuantity(text); isText && err != nil && slices.Contains(quantityMaps, lastName(path)) {
				r.report(at, fmt.Sprintf("Invalid value: %q: %s", text, noQuantity))
				delete(v, name)
				found = true
				continue
			}
			found = r.wrongQuantities(u, at, v[name]) || found
		}
	}
	return found
}
