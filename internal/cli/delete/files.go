package delete

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/kinds"
)

// inFiles connects and returns the jobs that manifests name and that exist. It prints which jobs do not exist and which
// objects are no jobs. It does not validate the manifests: a job that older rules accepted can be deleted by its
// manifest too.
func inFiles(ctx context.Context, p *kit.Program, files []string) (*kit.Cluster, []*kit.Job, error) {
	c, noCluster := p.Connect()
	files, err := manifest.Expand(files)
	if err != nil {
		return nil, nil, err
	}
	var named []manifest.Doc
	for _, file := range files {
		name, docs, faults, err := manifest.ReadFile(p.Open, file)
		switch {
		case err != nil:
			return nil, nil, err
		case len(faults) > 0:
			return nil, nil, fmt.Errorf("%s; nothing was deleted", faults[0])
		case len(docs) == 0:
			return nil, nil, fmt.Errorf("%s holds no object", name)
		}
		for _, d := range docs {
			if d.Object.GetName() == "" {
				return nil, nil, fmt.Errorf("%s; nothing was deleted", d.Fault("metadata.name", "required, because it says which job is meant"))
			}
		}
		named = append(named, docs...)
	}
	if noCluster != nil {
		return nil, nil, noCluster
	}
	var jobs []*kit.Job
	for _, d := range named {
		u := d.Object
		if u.GroupVersionKind().GroupVersion() != batch.GroupVersion {
			fmt.Fprintf(p.ErrOut, "%s stays: it is no job\n", manifest.NameOf(u))
			continue
		}
		kind, err := kinds.ByName(u.GetKind())
		if err != nil {
			return nil, nil, fmt.Errorf("%s; nothing was deleted", d.Fault("kind", err.Error()))
		}
		if err := c.Place(u, manifest.NameOf(u), true); err != nil {
			return nil, nil, fmt.Errorf("%w; nothing was deleted", err)
		}
		raw, err := c.Jobs(&kind, u.GetNamespace()).Get(ctx, u.GetName(), metav1.GetOptions{})
		switch {
		case kit.NotServed(err):
			return nil, nil, kit.ErrNotInstalled
		case apierrors.IsNotFound(err):
			fmt.Fprintf(p.ErrOut, "%s does not exist in namespace %q\n", manifest.NameOf(u), u.GetNamespace())
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("getting %s: %w", manifest.NameOf(u), err)
		}
		j, err := kit.NewJob(&kind, raw)
		if err != nil {
			return nil, nil, err
		}
		jobs = append(jobs, j)
	}
	return c, jobs, nil
}
