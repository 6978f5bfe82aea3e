package submit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/manifest"
)

// Client creates objects with the rights of a user.
type Client struct {
	Objects dynamic.Interface
	// REST is the client for discovering which kinds the API server serves.
	REST rest.Interface
	// Manager is the field manager of created objects.
	Manager string
}

// Created is an object that was created. Kind is nil unless the object is a job.
type Created struct {
	Kind            *kinds.Kind
	Namespace, Name string
	// Ref is KIND/NAME.
	Ref string
}

// target is an object with the client that creates it.
type target struct {
	*manifest.Result
	object *unstructured.Unstructured
	client dynamic.ResourceInterface
}

// Try sends all objects of a draft without errors to the API server as a server-side dry run, so that admission, quotas
// and the user's rights apply. It adds refusals to the errors of the draft. An object whose namespace the draft itself
// creates counts as accepted if only the namespace is missing. Try returns only errors that the manifest does not
// cause.
func (c Client) Try(ctx context.Context, d *Draft) error {
	_, err := c.try(ctx, d)
	return err
}

func (c Client) try(ctx context.Context, d *Draft) ([]target, error) {
	targets, err := c.locate(ctx, d)
	if err != nil {
		return nil, err
	}
	for i := range targets {
		t := &targets[i]
		_, err := t.client.Create(ctx, t.object.DeepCopy(), c.options(metav1.DryRunAll))
		if err != nil && !d.createsNamespaceOf(t, err) {
			diagnostics, other := t.diagnostics(err)
			if other != nil {
				return nil, fmt.Errorf("trying %s: %w", manifest.NameOf(t.object), other)
			}
			d.Errors = append(d.Errors, diagnostics...)
		}
	}
	manifest.Sort(d.Errors)
	return targets, nil
}

// Create creates the objects of a draft. It creates jobs last, because they may need the other objects. It first tries
// all objects: if the API server would refuse one, Create adds errors to the draft and creates nothing. If Create
// returns an error, it also returns the objects that were created before.
func (c Client) Create(ctx context.Context, d *Draft) ([]Created, error) {
	targets, err := c.try(ctx, d)
	if err != nil || len(d.Errors) > 0 {
		return nil, err
	}
	slices.SortStableFunc(targets, func(a, b target) int { return rank(a) - rank(b) })
	var all []Created
	for _, t := range targets {
		raw, err := t.client.Create(ctx, t.object, c.options())
		if err != nil {
			return all, fmt.Errorf("creating %s: %w", manifest.NameOf(t.object), err)
		}
		all = append(all, Created{t.Kind, raw.GetNamespace(), raw.GetName(), manifest.NameOf(raw)})
	}
	return all, nil
}

// rank returns the position of an object in the order of creation: namespaces, other objects, jobs.
func rank(t target) int {
	switch {
	case t.Kind != nil:
		return 2
	case isNamespace(t.object):
		return 0
	}
	return 1
}

func isNamespace(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Namespace")
}

func (c Client) options(dryRun ...string) metav1.CreateOptions {
	return metav1.CreateOptions{FieldManager: c.Manager, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun}
}

// locate returns the objects of a draft with their clients, and sets the namespaces of objects without one. If the
// cluster does not serve the kind of an object, locate leaves out the object and adds an error to the draft.
func (c Client) locate(ctx context.Context, d *Draft) ([]target, error) {
	var all []target
	served := map[schema.GroupVersion][]metav1.APIResource{}
	for i := range d.Objects {
		r := &d.Objects[i]
		t := target{Result: r, object: r.Object.DeepCopy()}
		gvk := t.object.GroupVersionKind()
		var resource string
		namespaced := true
		if r.Kind != nil {
			gvk, resource = batch.GroupVersion.WithKind(r.Kind.Name), r.Kind.Plural
		} else {
			found, err := c.served(ctx, served, gvk)
			if err != nil {
				return nil, err
			}
			if found == nil {
				d.Errors = append(d.Errors, r.At("kind", fmt.Sprintf("the cluster has no %s of %s", gvk.Kind, gvk.GroupVersion())))
				continue
			}
			resource, namespaced = found.Name, found.Namespaced
		}
		of := c.Objects.Resource(gvk.GroupVersion().WithResource(resource))
		if t.client = of; namespaced {
			if t.object.GetNamespace() == "" {
				t.object.SetNamespace(d.Namespace)
			}
			t.client = of.Namespace(t.object.GetNamespace())
		}
		all = append(all, t)
	}
	return all, nil
}

// served returns the resource of a kind; nil if the cluster does not serve the kind. known caches earlier answers.
func (c Client) served(ctx context.Context, known map[schema.GroupVersion][]metav1.APIResource, gvk schema.GroupVersionKind) (*metav1.APIResource, error) {
	gv := gvk.GroupVersion()
	if _, asked := known[gv]; !asked {
		path := []string{"/apis", gv.Group, gv.Version}
		if gv.Group == "" {
			path = []string{"/api", gv.Version}
		}
		var list metav1.APIResourceList
		err := c.REST.Get().AbsPath(path...).Do(ctx).Into(&list)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("asking which kinds %s has: %w", gv, err)
		}
		known[gv] = list.APIResources
	}
	for i := range known[gv] {
		if r := &known[gv][i]; r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") {
			return r, nil
		}
	}
	return nil, nil
}

// createsNamespaceOf reports whether an object is refused only because its namespace does not exist yet, and the
// manifest creates this namespace.
func (d *Draft) createsNamespaceOf(t *target, err error) bool {
	return missing(err) && slices.ContainsFunc(d.Objects, func(r manifest.Result) bool {
		return isNamespace(r.Object) && r.Object.GetName() == t.object.GetNamespace()
	})
}

// missing reports whether an error says that the namespace of an object does not exist.
func missing(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// diagnostics converts the refusal of an object to errors with line numbers. It returns any other error unchanged.
func (t *target) diagnostics(err error) ([]manifest.Diagnostic, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil, err
	}
	refusal := status.Status()
	switch {
	case refusal.Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err):
		return nil, err
	case missing(err):
		return []manifest.Diagnostic{t.At("metadata.namespace", fmt.Sprintf("there is no namespace %q", t.object.GetNamespace()))}, nil
	case apierrors.IsAlreadyExists(err):
		return []manifest.Diagnostic{t.At("metadata.name", fmt.Sprintf("%s exists already: choose another name, or delete it first", manifest.NameOf(t.object)))}, nil
	case apierrors.IsInvalid(err) && refusal.Details != nil && len(refusal.Details.Causes) > 0:
		var all []manifest.Diagnostic
		for _, cause := range refusal.Details.Causes {
			all = append(all, t.At(cause.Field, cause.Message))
		}
		return all, nil
	}
	return []manifest.Diagnostic{t.At("", strings.Join(strings.Fields(refusal.Message), " "))}, nil
}
