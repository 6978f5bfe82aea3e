package local

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/config"
)

// fieldManager is the field manager of everything that this package writes to the API server.
const fieldManager = "t9k-local"

// installCRDs installs the CustomResourceDefinitions of this repository, waits until the API server serves them, and
// then calls installQueue.
func (a *apiClient) installCRDs(ctx context.Context) error {
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

// installCRD installs the CRD in a file and waits until the API server serves it.
func (a *apiClient) installCRD(ctx context.Context, file string) error {
	data, err := config.CRDs.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	err = a.putCRD(ctx, crd)
	if apierrors.IsInvalid(err) && dropRankRules(crd) {
		err = a.putCRD(ctx, crd)
	}
	if err != nil {
		return fmt.Errorf("installing the CRD %s: %w", crd.Name, err)
	}
	return a.awaitServed(ctx, crd)
}

// dropRankRules removes the rules of a job's spec that read ranks, as config/before-1.34 does, and reports whether
// there were any. An API server before 1.34 treats a rank as an unbounded string and rejects the rules because of their
// estimated cost. The webhook and the operator make the same checks.
func dropRankRules(crd *apiextensionsv1.CustomResourceDefinition) bool {
	dropped := false
	for i := range crd.Spec.Versions {
		spec, ok := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
		if !ok {
			continue
		}
		all := len(spec.XValidations)
		spec.XValidations = slices.DeleteFunc(spec.XValidations, func(r apiextensionsv1.ValidationRule) bool { return strings.Contains(r.Rule, ".split('-'") })
		dropped = dropped || len(spec.XValidations) < all
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	return dropped
}

// putCRD creates or updates a CRD. It does not write an established CRD that is already up to date, because a read
// costs the API server far less. It always writes a CRD that is not established: an API server that was killed while it
// established a CRD continues only when the CRD changes.
func (a *apiClient) putCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	there, err := a.crds.Get(ctx, crd.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = a.crds.Create(ctx, crd, metav1.CreateOptions{FieldManager: fieldManager})
		return err
	}
	if err != nil || isEstablished(there) && apiequality.Semantic.DeepEqual(there.Spec, crd.Spec) {
		return err
	}
	there.Spec = crd.Spec
	metav1.SetMetaDataAnnotation(&there.ObjectMeta, writtenAtAnnotation, time.Now().Format(time.RFC3339Nano))
	_, err = a.crds.Update(ctx, there, metav1.UpdateOptions{FieldManager: fieldManager})
	return err
}

// writtenAtAnnotation holds the time of the last update, so that each update changes the CRD.
const writtenAtAnnotation = "local.tensorstack.dev/written-at"

// isEstablished reports whether the CRD has the condition Established.
func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// awaitServed returns nil when discovery lists the CRD's resource. It uses discovery, which costs the API server far
// less than reading the CRD repeatedly.
func (a *apiClient) awaitServed(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	version := crd.Spec.Group + "/" + crd.Spec.Versions[0].Name
	for {
		served, err := a.core.Discovery().ServerResourcesForGroupVersion(version)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the resources of %s that the API server serves: %w", version, err)
		}
		if err == nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
			return nil
		}
		if !sleep(ctx, readyInterval) {
			return ctx.Err()
		}
	}
}
