package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/config"
	"tensorstack.dev/batch/internal/nearest"
)

// definition is a CustomResourceDefinition. It checks objects as the API server does: with the same packages in the
// same order.
type definition struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// loadDefinition loads a definition that is embedded in this program.
func loadDefinition(of schema.GroupVersionResource) (*definition, error) {
	name := fmt.Sprintf("crd/%s_%s.yaml", of.Group, of.Resource)
	data, err := config.CRDs.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading schema: %w", err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("reading schema %s: %w", name, err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == of.Version })
	if i < 0 {
		return nil, fmt.Errorf("reading schema %s: no version %s", name, of.Version)
	}
	var props apiextensions.JSONSchemaProps
	err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, &props, nil)
	if err != nil {
		return nil, fmt.Errorf("converting schema %s: %w", name, err)
	}
	s := &definition{}
	if s.structural, err = structuralschema.NewStructural(&props); err != nil {
		return nil, fmt.Errorf("converting schema %s: %w", name, err)
	}
	if s.values, _, err = validation.NewSchemaValidator(&props); err != nil {
		return nil, fmt.Errorf("converting schema %s: %w", name, err)
	}
	s.rules = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s, nil
}

// problem is an error at a path.
type problem struct{ path, message string }

// decode removes the fields that the schema does not know and the values of a wrong type in the metadata, returns both
// as problems, and sets the schema's defaults.
func (s *definition) decode(u *unstructured.Unstructured) []problem {
	meta, unknown, problems := readMeta(u)
	for _, path := range unknown {
		problems = append(problems, problem{path, "unknown field"})
	}
	apiVersion, kind := u.GetAPIVersion(), u.GetKind()
	opts := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	for _, path := range pruning.PruneWithOptions(u.Object, s.structural, true, opts) {
		problems = append(problems, problem{path, "unknown field" + s.suggest(path)})
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.structural)
	if err, paths := objectmeta.CoerceWithOptions(nil, u.Object, s.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true}); err != nil {
		problems = append(problems, problem{err.Field, err.ErrorBody()})
	} else {
		for _, path := range paths {
			problems = append(problems, problem{path, "unknown field"})
		}
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	if meta != nil {
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			problems = append(problems, problem{"metadata", err.Error()})
		}
	}
	defaulting.Default(u.Object, s.structural)
	return problems
}

// readMeta decodes the metadata of an object. It returns the paths of unknown fields, and the values of a wrong type as
// problems. A decoder stops at the first value of a wrong type. readMeta therefore removes that value and decodes the
// rest again.
func readMeta(u *unstructured.Unstructured) (meta *metav1.ObjectMeta, unknown []string, problems []problem) {
	for range maxWrongValues {
		meta, _, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
		if err == nil {
			return meta, unknown, problems
		}
		found, ok := wrongMeta(u, err)
		problems = append(problems, found)
		if !ok {
			u.Object["metadata"] = map[string]any{"name": standInName}
		}
	}
	return nil, nil, problems
}

// wrongMeta converts a decoder's error about a value of the metadata to a problem and removes the value. It returns
// false if it cannot find the value.
func wrongMeta(u *unstructured.Unstructured, err error) (problem, bool) {
	if _, isMap := u.Object["metadata"].(map[string]any); !isMap {
		return problem{"metadata", "write a mapping of fields, such as name"}, false
	}
	found := wrongType(err)
	if found == nil {
		return problem{"metadata", err.Error()}, false
	}
	path := "metadata." + found.Field
	value, _ := lookUp(u.Object, path)
	if labels, ok := value.(map[string]any); ok && found.Type.Kind() == reflect.String {
		for _, name := range sortedNames(labels) {
			if _, isText := labels[name].(string); !isText {
				path += "." + name
				break
			}
		}
	}
	wrong := problem{path, fmt.Sprintf("cannot be %s: write %s", article(found.Value), wanted(found.Type.String()))}
	if path == "metadata.name" || path == "metadata.generateName" { // otherwise the missing name would be reported too
		return wrong, replace(u.Object, path, standInName)
	}
	return wrong, remove(u.Object, path)
}

// suggest returns, as a question, the known field that is most similar to an unknown one; empty if none is similar.
func (s *definition) suggest(path string) string {
	at := s.structural
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		name, index, _ := strings.Cut(step, "[")
		next, ok := at.Properties[name]
		if !ok {
			return ""
		}
		at = &next
		for range strings.Count(index, "]") {
			if at.Items == nil {
				return ""
			}
			at = at.Items
		}
	}
	names := make([]string, 0, len(at.Properties))
	for name := range at.Properties {
		names = append(names, name)
	}
	if near := nearest.Names(steps[len(steps)-1], names, 1); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	return ""
}

// checkValues returns the errors that the API server would report for the values of a new object. complete is false if
// the errors keep the API server from evaluating rules, which rely on types and bounds.
func (s *definition) checkValues(u *unstructured.Unstructured, namespaced bool) (errs field.ErrorList, complete bool) {
	errs = apivalidation.ValidateObjectMetaAccessor(u, namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResource(nil, u.Object, s.values)...)
	errs = append(errs, objectmeta.Validate(nil, u.Object, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, u.Object)...)
	return inOrder(oneForType(errs)), !slices.ContainsFunc(errs, hidesRules)
}

// oneForType reduces several errors about the type of one value to one. If a schema offers alternative types, each type
// that does not match is an error, and so is the lack of a matching type.
func oneForType(errs field.ErrorList) field.ErrorList {
	first := map[string]*field.Error{}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		if e.Type != field.ErrorTypeTypeInvalid {
			return (e.Field == "" || e.Field == "<nil>") && strings.HasSuffix(e.Detail, "must validate at least one schema (anyOf)")
		}
		before := first[e.Field]
		if before == nil {
			first[e.Field] = e
		} else if len(e.Detail) > len(before.Detail) { // this error names all types
			*before = *e
		}
		return before != nil
	})
}

// checkRules returns an error for each rule of the schema that the object breaks.
func (s *definition) checkRules(ctx context.Context, u *unstructured.Unstructured) field.ErrorList {
	if s.rules == nil {
		return nil
	}
	errs, _ := s.rules.Validate(ctx, nil, s.structural, u.Object, nil, celconfig.RuntimeCELCostBudget)
	return inOrder(errs)
}

// inOrder sorts errors by path, because the packages iterate over maps.
func inOrder(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// hidesRules reports whether the API server skips rules after an error.
func hidesRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// longest is the largest length in bytes of a value that an error quotes. Longer texts are cut, except those that hold
// a JSON object, and other longer values are left out.
const longest = 80

// quantityPattern is a part of the schema's pattern of quantities. describe replaces a message that contains it by
// noQuantity.
const (
	quantityPattern = `(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
	noQuantity      = "not a quantity: write a number such as 2, 500m or 8Gi"
)

var needsMore = regexp.MustCompile(`^should have at least (\d+) (item|propertie)s$`)

// describe returns the message for an error without the path: what is wrong, with the value if it is short, and how to
// correct it.
func (r *Result) describe(err *field.Error) string {
	short := *err
	short.Detail = strings.TrimPrefix(err.Detail, err.Field+" in body ")
	if err.Type == field.ErrorTypeTypeInvalid {
		// The schema's message begins with the name of the value's type.
		short.Detail, _, _ = strings.Cut(short.Detail, ": ")
		short.Detail = strings.ReplaceAll(short.Detail, ",", " or ")
		short.BadValue = field.OmitValueType{}
		if value, ok := lookUp(r.Object.Object, err.Field); ok {
			short.BadValue = value
		}
	}
	if strings.Contains(short.Detail, quantityPattern) {
		short.Detail = noQuantity
	}
	if m := needsMore.FindStringSubmatch(short.Detail); m != nil {
		short.BadValue = field.OmitValueType{} // the value is the number of items
		short.Detail = fmt.Sprintf("should have at least %s %s", m[1], map[string]string{"item": "item(s)", "propertie": "field(s)"}[m[2]])
	}
	switch v := short.BadValue.(type) {
	case nil, bool, int, int32, int64, field.OmitValueType:
	case string:
		switch {
		case strings.HasPrefix(v, "{") && json.Valid([]byte(v)):
			short.BadValue = json.RawMessage(v) // avoids encoding the JSON twice
		case len(v) > longest:
			short.BadValue = v[:longest] + "…"
		}
	default:
		if data, err := json.Marshal(v); err != nil || len(data) > longest {
			short.BadValue = field.OmitValueType{}
		}
	}
	return strings.Join(strings.Fields(short.ErrorBody()), " ")
}
