package run

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/manifest"
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
	// quiet suppresses the line about each applied or deleted object.
	quiet bool
	// replace deletes existing jobs before the manifest's jobs are applied.
	replace bool
	// others are applied before jobs, which may need them.
	others, jobs []target
}

// locate fills others and jobs with the objects and their clients. It sets the namespaces of namespaced objects that
// have none.
func (p *applier) locate(results []manifest.Result) error {
	var mapper meta.RESTMapper
	for _, r := range results {
		if r.Kind != nil {
			if err := p.cluster.Place(r.Object, manifest.NameOf(r.Object), true); err != nil {
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
		if err := p.cluster.Place(r.Object, manifest.NameOf(r.Object), namespaced); err != nil {
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

// apply applies all objects, jobs last, and returns the jobs. With replace, it deletes existing jobs before it applies
// the new ones. A dry run of the jobs finds errors from the API server before anything is changed.
func (p *applier) apply(ctx context.Context) ([]*kit.Job, error) {
	// A missing namespace is not an error here, because the same manifest may create it.
	if err := p.tryAll(ctx, apierrors.IsNotFound); err != nil {
		return nil, err
	}
	for _, t := range p.others {
		if _, err := p.applyOne(ctx, t); err != nil {
			return nil, err
		}
	}
	if p.replace {
		if err := p.removeJobs(ctx); err != nil {
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

// tryAll applies all jobs as dry runs. It returns the first error for which accepted returns false, or
// kit.ErrNotInstalled if the cluster does not serve a kind of job.
func (p *applier) tryAll(ctx context.Context, accepted func(error) bool) error {
	for _, t := range p.jobs {
		_, err := p.try(ctx, t)
		switch {
		case err == nil:
		case kit.NotServed(err):
			return kit.ErrNotInstalled
		case !accepted(err):
			return fmt.Errorf("applying %s: %w", manifest.NameOf(t.Object), err)
		}
	}
	return nil
}

// try applies a job as a dry run. With replace, a job is tried as a new one, under a placeholder name of the same
// length, because a live job accepts fewer changes.
func (p *applier) try(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	if name := t.Object.GetName(); p.replace && name != "" {
		t.Object = t.Object.DeepCopy()
		t.Object.SetName(strings.Repeat("x", len(name)))
	}
	return p.put(ctx, t, true)
}

// removeJobs deletes the existing jobs of the manifest and waits until they and their pods are deleted. It deletes none
// if the API server would refuse one of the deletions or one of the new jobs.
func (p *applier) removeJobs(ctx context.Context) error {
	old, err := p.existingJobs(ctx)
	if err != nil || len(old) == 0 {
		return err
	}
	// The other objects of the manifest exist now, so a missing namespace is an error.
	if err := p.tryAll(ctx, func(error) bool { return false }); err != nil {
		return fmt.Errorf("%w\nNo job was deleted", err)
	}
	for _, j := range old {
		if err := p.cluster.Steer().TryDelete(ctx, j); err != nil {
			return fmt.Errorf("%w\nNo job was deleted", err)
		}
	}
	for _, j := range old {
		if err := p.cluster.Steer().Delete(ctx, j); err != nil {
			return err
		}
	}
	for _, j := range old {
		if err := p.cluster.AwaitGone(ctx, p.Program, j); err != nil {
			return err
		}
		if !p.quiet {
			fmt.Fprintf(p.Out, "%s deleted\n", j.Ref())
		}
	}
	return nil
}

// existingJobs returns the jobs that exist under the names of the manifest's jobs.
func (p *applier) existingJobs(ctx context.Context) ([]*kit.Job, error) {
	var old []*kit.Job
	for _, t := range p.jobs {
		if t.Object.GetName() == "" {
			continue
		}
		raw, err := t.client.Get(ctx, t.Object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting %s: %w", manifest.NameOf(t.Object), err)
		}
		j, err := observed.New(t.Kind, raw)
		if err != nil {
			return nil, err
		}
		old = append(old, j)
	}
	return old, nil
}

func (p *applier) applyOne(ctx context.Context, t target) (*unstructured.Unstructured, error) {
	word := "created"
	before := ""
	if name := t.Object.GetName(); name != "" {
		old, err := t.client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			before, word = old.GetResourceVersion(), "configured"
		case apierrors.IsForbidden(err): // a user who may not get objects can still be allowed to apply them
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

// put applies an object with server-side apply. If the object has no name, put creates it, and the API server generates
// the name. dry makes the request a dry run.
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
	// The manifest overrides changes of other field managers.
	force := true
	return t.client.Patch(ctx, t.Object.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: kit.FieldManager, FieldValidation: metav1.FieldValidationStrict, Force: &force, DryRun: dryRun,
	})
}
