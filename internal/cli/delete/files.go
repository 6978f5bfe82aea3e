package delete

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/manifest"
	"tensorstack.dev/batch/internal/observed"
)

// inFiles connects to the cluster and returns the existing jobs that manifests name. It prints which jobs do not exist
// and which objects are not jobs.
func inFiles(ctx context.Context, p *kit.Program, files []string) (*kit.Cluster, []*kit.Job, error) {
	named, err := readFiles(p, files)
	if err != nil {
		return nil, nil, err
	}
	c, err := p.Connect()
	if err != nil {
		return nil, nil, err
	}
	var jobs []*kit.Job
	for _, d := range named {
		if d.Object.GroupVersionKind().GroupVersion() != batch.GroupVersion {
			fmt.Fprintf(p.ErrOut, "%s is not a job and is kept\n", manifest.NameOf(d.Object))
			continue
		}
		j, err := existing(ctx, c, d)
		if apierrors.IsNotFound(err) {
			fmt.Fprintf(p.ErrOut, "%s does not exist in namespace %q\n", manifest.NameOf(d.Object), d.Object.GetNamespace())
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w; nothing was deleted", err)
		}
		jobs = append(jobs, j)
	}
	return c, jobs, nil
}

// readFiles returns the objects of manifests. Each manifest must have an object, and each object a name. readFiles does
// not validate the objects further, so that a user can delete a job by its manifest even if the current rules refuse
// the manifest.
func readFiles(p *kit.Program, files []string) ([]manifest.Doc, error) {
	files, err := manifest.Expand(files)
	if err != nil {
		return nil, err
	}
	var named []manifest.Doc
	for _, file := range files {
		name, docs, diags, err := manifest.ReadFile(p.Open, file)
		switch {
		case err != nil:
			return nil, err
		case len(diags) > 0:
			return nil, fmt.Errorf("%s; nothing was deleted", diags[0])
		case len(docs) == 0:
			return nil, fmt.Errorf("%s holds no object", name)
		}
		for _, d := range docs {
			if d.Object.GetName() == "" {
				return nil, fmt.Errorf("%s; nothing was deleted", d.At("metadata.name", "required, because it says which job is meant"))
			}
		}
		named = append(named, docs...)
	}
	return named, nil
}

// existing returns the job that a document names. If the job does not exist, apierrors.IsNotFound is true for the
// error. existing sets the namespace of the document's object if the manifest does not.
func existing(ctx context.Context, c *kit.Cluster, d manifest.Doc) (*kit.Job, error) {
	u := d.Object
	kind, err := kinds.ByName(u.GetKind())
	if err != nil {
		return nil, fmt.Errorf("%s", d.At("kind", err.Error()))
	}
	if err := c.Place(u, manifest.NameOf(u), true); err != nil {
		return nil, err
	}
	raw, err := c.Jobs(&kind, u.GetNamespace()).Get(ctx, u.GetName(), metav1.GetOptions{})
	if kit.NotServed(err) {
		return nil, kit.ErrNotInstalled
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", manifest.NameOf(u), err)
	}
	return observed.New(&kind, raw)
}
