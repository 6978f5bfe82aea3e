package manifest

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/nearest"
)

// Checker checks objects. It loads each definition once, when it is first needed. It is not safe for concurrent use.
type Checker struct {
	// Namespace is the namespace of objects that do not name one.
	Namespace string
	// Limits are the limits against which jobs are validated.
	Limits kinds.Limits
	// MaxErrors is the largest number of errors that are reported for one object; zero means all. The time to find the
	// line of an error grows with the number of fields in the object.
	MaxErrors int

	definitions map[schema.GroupVersionResource]*definition
}

// Result is the result of checking one object.
type Result struct {
	Doc
	Errors []Diagnostic
	// Warnings are about fields of a valid object that have no effect.
	Warnings []Diagnostic
	// Kind is the kind of a job; nil for other objects. Job is the converted job; nil if the job has errors.
	Kind *kinds.Kind
	Job  *engine.Job
	// Unknown is true for objects that were not checked because this program has no schema for them.
	Unknown bool

	// limit is Checker.MaxErrors.
	limit int
}

// Check returns the errors and warnings that admission would return for an object. The error is a failure of this
// program, not of the manifest.
func (c *Checker) Check(ctx context.Context, d Doc) (Result, error) {
	r := Result{Doc: d, limit: c.MaxErrors}
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
		r.report("apiVersion", field.NotSupported(nil, d.Object.GetAPIVersion(), supported).ErrorBody())
		return r, nil
	case !slices.Contains(names, gvk.Kind):
		r.report("kind", unknownKind(gvk.Kind, names))
		return r, nil
	case gvk.Group != batch.GroupVersion.Group:
		err := c.checkOther(ctx, &r, others[slices.IndexFunc(others, func(o other) bool { return o.of == gvk })])
		return r, err
	}
	kind, err := kinds.ByName(gvk.Kind)
	if err != nil {
		return r, err
	}
	r.Kind = &kind
	err = c.checkJob(ctx, &r)
	return r, err
}

func (r *Result) report(path, message string) {
	if r.limit > 0 && len(r.Errors) >= r.limit {
		return
	}
	r.Errors = append(r.Errors, r.At(path, message))
}

func (r *Result) errors(errs field.ErrorList) {
	for _, e := range errs {
		r.report(e.Field, r.describe(e))
	}
}

func unknownKind(name string, names []string) string {
	text := field.NotSupported(nil, name, names).ErrorBody()
	if near := nearest.Names(name, names, 1); len(near) > 0 && len(names) > 1 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return text
}

func (c *Checker) checkJob(ctx context.Context, r *Result) error {
	return c.checkCustom(ctx, r, batch.GroupVersion.WithResource(r.Kind.Plural), true, func(u *unstructured.Unstructured) (broken field.ErrorList, err error) {
		object := r.Kind.New()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
			return nil, err
		}
		if broken = r.Kind.Validate(object, c.Limits); len(broken) == 0 {
			r.Job = r.Kind.Convert(object)
			r.warn(r.Kind.Warnings(object, r.Job))
		}
		return broken, nil
	})
}

// warn adds admission's warnings.
func (r *Result) warn(warnings []kinds.Warning) {
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, r.At(w.Field, "warning: "+w.Message))
	}
}

// checkCustom checks an object of a CRD against the schema and with Go code.
func (c *Checker) checkCustom(ctx context.Context, r *Result, of schema.GroupVersionResource, namespaced bool, code codeCheck) error {
	s, err := c.definition(of)
	if err != nil {
		return err
	}
	u := r.Object.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "status")
	for _, unknown := range s.decode(u) {
		r.report(unknown.path, unknown.message)
	}
	if namespaced && u.GetNamespace() == "" {
		u.SetNamespace(c.Namespace)
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + "xxxxx")
	}
	errs, complete := s.checkValues(u, namespaced)
	broken := code.check(u, errs)
	// The Go code also finds the errors that the rules find, and returns more precise paths.
	if complete && len(broken) == 0 {
		broken = s.checkRules(ctx, u)
	}
	r.errors(merge(errs, broken))
	if len(r.Errors) > 0 {
		r.Job, r.Warnings = nil, nil
	}
	return nil
}

// definition returns the CustomResourceDefinition of a resource.
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
