package local

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/config"
)

// fieldManager is the one of what this package writes.
const fieldManager = "t9k-local"

// installCRDs has the API server serve the CustomResourceDefinitions of this repository, and makes what every cluster has
// of them.
func (a *api) installCRDs(ctx context.Context) error {
	files, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		return err
	}
	all, each := errgroup.WithContext(ctx)
	for _, file := range files {
		all.Go(func() error { return a.installCRD(each, file) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return a.installQueue(ctx)
}

func (a *api) installCRD(ctx context.Context, file string) error {
	data, err := config.CRDs.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	if err := a.putCRD(ctx, crd); err != nil {
		return fmt.Errorf("installing the CRD %s: %w", crd.Name, err)
	}
	return a.awaitServed(ctx, crd)
}

// putCRD writes a CRD unless it is there as it should be: to read is far less work for the API server. One that is not established
// is written whatever it says: an API server that was killed on the way there goes on only when the CRD changes.
func (a *api) putCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	there, err := a.crds.Get(ctx, crd.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = a.crds.Create(ctx, crd, metav1.CreateOptions{FieldManager: fieldManager})
		return err
	}
	if err != nil || isEstablished(there) && apiequality.Semantic.DeepEqual(there.Spec, crd.Spec) {
		return err
	}
	there.Spec = crd.Spec
	metav1.SetMetaDataAnnotation(&there.ObjectMeta, writtenAt, time.Now().Format(time.RFC3339Nano))
	_, err = a.crds.Update(ctx, there, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// writtenAt is the annotation that makes each update of a CRD a change.
const writtenAt = "local.tensorstack.dev/written-at"

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// awaitServed returns when the API server lists the resource among those that it serves. To read the CRD itself until it says
// so would be work of another order.
func (a *api) awaitServed(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	version := crd.Spec.Group + "/" + crd.Spec.Versions[0].Name
	for {
		served, err := a.core.Discovery().ServerResourcesForGroupVersion(version)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("asking what is served of %s: %w", version, err)
		}
		if err == nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
			return nil
		}
		if !sleep(ctx, readyInterval) {
			return ctx.Err()
		}
	}
}
