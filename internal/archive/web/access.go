package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"tensorstack.dev/batch/internal/archive"
)

// Self implements Access for the user of a client: it creates SelfSubjectAccessReviews with this client.
type Self struct{ Objects dynamic.Interface }

// reviews is the resource with which callers ask for their own access.
var reviews = authorization.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")

// atOnce is the largest number of namespaces that one call of MayGet reviews concurrently.
const atOnce = 16

// MayGet implements Access.
func (s Self) MayGet(ctx context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error) {
	may := make([]bool, len(namespaces))
	if len(namespaces) > 1 { // one review is enough for a caller who may see all namespaces
		switch all, err := s.review(ctx, resource, ""); {
		case err != nil:
			return nil, err
		case all:
			return slices.Repeat([]bool{true}, len(namespaces)), nil
		}
	}
	reviews, ctx := errgroup.WithContext(ctx)
	reviews.SetLimit(atOnce)
	for i, namespace := range namespaces {
		reviews.Go(func() (err error) {
			may[i], err = s.review(ctx, resource, namespace)
			return err
		})
	}
	return may, reviews.Wait()
}

// review reports whether the caller may get a resource in a namespace; an empty namespace means all namespaces.
func (s Self) review(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
	attributes := map[string]any{"verb": "get", "group": resource.Group, "namespace": namespace}
	attributes["resource"] = resource.Resource
	if of, part, divided := strings.Cut(resource.Resource, "/"); divided {
		attributes["resource"], attributes["subresource"] = of, part
	}
	review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": authorization.SchemeGroupVersion.String(), "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": attributes}}}
	answer, err := s.Objects.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return false, archive.Refuse(http.StatusUnauthorized, "the cluster does not accept your credentials")
	case apierrors.IsForbidden(err): // anonymous users may not create SelfSubjectAccessReviews
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking what you may see: %w", err)
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	if err != nil {
		return false, fmt.Errorf("asking what you may see: %w", err)
	}
	return allowed, nil
}
