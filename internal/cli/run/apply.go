package run

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/observed"
)

// target is an object and the client that writes it.
type target struct {
	manifest.Result
	client dynamic.ResourceInterface
}

// applier applies the objects of a manifest.
type applier struct {
	*kit.Program
	cluster *kit.Cluster
	quiet   bool
	// others are applied before jobs, which may need them.
	others, jobs []target
}

// locate finds the client of each object.
func (p *applier) locate(results []manifest.Result) error {
	var mapper meta.RESTMapper
	for _, r := range results {
		if r.Kind != nil {
			if err := p.place(r.Object, true); err != nil {
				return err
			}
			p.jobs = append(p.jobs, target{r, p.cluster.Jobs(r.Kind, r.Object.GetNamespace())})
			continue
		}
		if mapper == nil {
			discovery, err := p.Flags.ToDiscoveryClient()
			if err != nil {
				return fmt.Errorf("making a client: %w", err)
			}
			mapper = restmapper.NewDeferredDiscoveryRESTMapper(discovery)
		}
		gvk := r.Object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", r.File, r.Line, err)
		}
		namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
		if err := p.place(r.Object, namespaced); err != nil {
			return err
		}
		var client dynamic.ResourceInterface = p.cluster.Objects.Resource(mapping.Resource)
		if namespaced {
			client = p.cluster.Objects.Resource(mapping.Resource).Namespace(r.Object.GetNamespace())
		}
		p.others = append(p.others, target{r, client})
	}
	return nil
}

// place sets the namespace of an object.
func (p *applier) place(u *unstructured.Unstructured, namespaced bool) error {
	switch {
	case !namespaced:
	case u.GetNamespace() == "":
		u.SetNamespace(p.cluster.Namespace)
	case p.cluster.Chosen && u.GetNamespace() != p.cluster.Namespace:
		return fmt.Errorf("the manifest puts %s into namespace %q, and -n says %q", manifest.NameOf(u), u.GetNamespace(), p.cluster.Namespace)
	}
	return nil
}

// apply applies all objects, jobs last. A dry run of the jobs finds errors from the API server before anything is
// changed.
func (p *applier) apply(ctx context.Context) ([]*kit.Job, error) {
	for _, t := range p.jobs {
		_, err := p.put(ctx, t, true)
		if kit.NotServed(err) {
			return nil, kit.ErrNotInstalled
		}
		// A missing namespace is no error here, because the same manifest may create it.
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("applying %s: %w", manifest.NameOf(t.Object), err)
		}
	}
	for _, t := range p.others {
		if _, err := p.applyOne(ctx, t); err != nil {
			return nil, err
		}
	}
	var jobs []*kit.Job
	for _, t := range p.jobs {
		raw, err := p.applyOne(ctx, t)
		if err != nil {
			return nil, err
		}
		j, err := observed.New(t.Kind, raw)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (p *applier) applyOne(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	word := "created"
	before := ""
	if name := t.Object.GetName(); name != "" {
		old, err := t.client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			before, word = old.GetResourceVersion(), "configured"
		case apierrors.IsForbidden(err): // a user without the right to get objects may still apply them
			word = "applied"
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("getting %s: %w", manifest.NameOf(t.Object), err)
		}
	}
	raw, err := p.put(ctx, t, false)
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", manifest.NameOf(t.Object), err)
	}
	if raw.GetResourceVersion() == before {
		word = "unchanged"
	}
	if !p.quiet {
		fmt.Fprintf(p.Out, "%s %s\n", manifest.NameOf(raw), word)
	}
	return raw, nil
}

// put applies an object with server-side apply. It creates an object without a name, which the API server generates.
func (p *applier) put(ctx context.Context, t target, dry bool) (*unstructured.Unstructured, error) {
	var dryRun []string
	if dry {
		dryRun = []string{metav1.DryRunAll}
	}
	if t.Object.GetName() == "" {
		return t.client.Create(ctx, t.Object, metav1.CreateOptions{
			FieldManager: kit.FieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun,
		})
	}
	data, err := t.Object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	// The manifest overrides changes that other field managers made since.
	force := true
	return t.client.Patch(ctx, t.Object.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: kit.FieldManager, FieldValidation: metav1.FieldValidationStrict, Force: &force, DryRun: dryRun,
	})
}
