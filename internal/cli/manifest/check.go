package manifest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/nearest"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// Checker checks objects. It reads each definition once, when it is first needed.
type Checker struct {
	// Namespace is that of objects that name none.
	Namespace string

	definitions map[schema.GroupVersionResource]*definition
}

// Result is what a check found out about one object.
type Result struct {
	Doc
	Faults []Fault
	// Kind is set for a job, and Job, its normal form, where it is without fault.
	Kind *kinds.Kind
	Job  *engine.Job
	// Unknown is true for objects of which this program has no schema, so that nothing of them was checked.
	Unknown bool
}

// Check says what admission would say to an object. The error is one of this program, not of the manifest.
func (c *Checker) Check(ctx context.Context, d Doc) (Result, error) {
	r := Result{Doc: d}
	gvk := d.Object.GroupVersionKind()
	names, version := known(gvk.Group)
	switch {
	case len(names) == 0:
		r.Unknown = !scheme.Scheme.Recognizes(gvk)
		if !r.Unknown {
			r.checkBuiltIn()
		}
		return r, nil
	case gvk.Version != version:
		supported := []string{schema.GroupVersion{Group: gvk.Group, Version: version}.String()}
		r.fault(describe(field.NotSupported(d.Path.Child("apiVersion"), d.Object.GetAPIVersion(), supported)))
		return r, nil
	case !slices.Contains(names, gvk.Kind):
		r.fault(unknownKind(d, gvk.Kind, names))
		return r, nil
	case gvk.Group != batch.GroupVersion.Group:
		return r, c.checkOther(ctx, &r, others[slices.IndexFunc(others, func(o other) bool { return o.of == gvk })])
	}
	kind, err := kinds.ByName(gvk.Kind)
	if err != nil {
		return r, err
	}
	r.Kind = &kind
	return r, c.checkJob(ctx, &r)
}

func (r *Result) fault(message string) {
	r.Faults = append(r.Faults, Fault{r.File, r.Index, message})
}

func unknownKind(d Doc, name string, names []string) string {
	text := describe(field.NotSupported(d.Path.Child("kind"), name, names))
	if near := nearest.Names(name, names, 1); len(near) > 0 && len(names) > 1 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return text
}

// checkBuiltIn finds unknown fields and wrong types in an object of Kubernetes itself.
func (r *Result) checkBuiltIn() {
	data, err := r.Object.MarshalJSON()
	if err != nil {
		r.fault(err.Error())
		return
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	_, _, err = decoder.Decode(data, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			r.fault(unknownField(r.Path, e))
		}
	} else if err != nil {
		r.fault(wrongType(r.Path, err))
	}
}

var unmarshalError = regexp.MustCompile(`^json: cannot unmarshal (\w+) into Go struct field \w+\.(\S+) of type \S+$`)

// wrongType writes a decoder's complaint about a value like the other faults.
func wrongType(at *field.Path, err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if m := unmarshalError.FindStringSubmatch(text); m != nil {
		return at.Child(m[2]).String() + ": cannot be of type " + m[1]
	}
	return prefixed(at, text)
}

// unknownField writes a decoder's complaint like the other faults, the path first.
func unknownField(at *field.Path, err error) string {
	path, ok := strings.CutPrefix(err.Error(), `unknown field "`)
	if !ok {
		return err.Error()
	}
	return at.Child(strings.TrimSuffix(path, `"`)).String() + ": unknown field"
}

func (c *Checker) checkJob(ctx context.Context, r *Result) error {
	return c.checkCustom(ctx, r, batch.GroupVersion.WithResource(r.Kind.Plural), true, func(u *unstructured.Unstructured) (broken field.ErrorList) {
		r.Job, broken = lower(r.Kind, u)
		return broken
	})
}

// checkCustom checks an object of a CRD, and by code what only code can tell.
func (c *Checker) checkCustom(ctx context.Context, r *Result, of schema.GroupVersionResource, namespaced bool, code func(*unstructured.Unstructured) field.ErrorList) error {
	s, err := c.definition(of)
	if err != nil {
		return err
	}
	u := r.Object.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "status")
	if namespaced && u.GetNamespace() == "" {
		u.SetNamespace(c.Namespace)
	}
	for _, message := range s.decode(u) {
		r.fault(prefixed(r.Path, message))
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + "xxxxx")
	}
	errs, complete := s.checkValues(u, namespaced)
	if complete {
		broken := code(u)
		// The code finds what the rules find, and names the place.
		if len(broken) == 0 {
			broken = s.checkRules(ctx, u)
		}
		errs = append(errs, broken...)
	}
	for _, e := range errs {
		r.fault(prefixed(r.Path, describe(e)))
	}
	if len(r.Faults) > 0 {
		r.Job = nil
	}
	return nil
}

// lower turns an object into the normal form, or reports what only code can tell.
func lower(kind *kinds.Kind, u *unstructured.Unstructured) (*engine.Job, field.ErrorList) {
	object := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return kind.Lower(object, kinds.Options{})
}

func prefixed(at *field.Path, message string) string {
	if at == nil {
		return message
	}
	return at.String() + "." + message
}

// definition is that of the CustomResourceDefinition of a resource.
func (c *Checker) definition(of schema.GroupVersionResource) (*definition, error) {
	if s := c.definitions[of]; s != nil {
		return s, nil
	}
	s, err := loadDefinition(of)
	if err != nil {
		return nil, err
	}
	if c.definitions == nil {
		c.definitions = map[schema.GroupVersionResource]*definition{}
	}
	c.definitions[of] = s
	return s, nil
}
