package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/kinds"
)

// scope is what the caller of one request may see.
type scope struct {
	access Access
	store  *store.Store
	known  map[store.Place]bool
}

// may returns whether the caller may see the jobs of a place.
func (s *scope) may(ctx context.Context, p store.Place) (bool, error) {
	for _, p := range []store.Place{{Kind: p.Kind}, p} {
		allowed, known := s.known[p]
		if !known {
			kind, err := kinds.ByName(p.Kind)
			if err != nil {
				return false, nil //nolint:nilerr // nobody may get jobs of a kind that no longer exists
			}
			if allowed, err = s.access.MayGet(ctx, batch.GroupVersion.WithResource(kind.Plural).GroupResource(), p.Namespace); err != nil {
				return false, err
			}
			s.known[p] = allowed
		}
		if allowed {
			return true, nil
		}
	}
	return false, nil
}

// places returns the places that the caller may see, of one kind and namespace or, if they are empty, of all.
func (s *scope) places(ctx context.Context, kind, namespace string) ([]store.Place, error) {
	all, err := s.store.Places(ctx)
	if err != nil {
		return nil, err
	}
	visible := []store.Place{}
	for _, p := range all {
		if kind != "" && p.Kind != kind || namespace != "" && p.Namespace != namespace {
			continue
		}
		may, err := s.may(ctx, p)
		if err != nil {
			return nil, err
		}
		if may {
			visible = append(visible, p)
		}
	}
	return visible, nil
}

// Self is the access of whoever a client belongs to.
type Self struct{ Objects dynamic.Interface }

// reviews is the resource by which callers ask what they may do.
var reviews = authorization.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")

// MayGet implements Access.
func (s Self) MayGet(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
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
		return false, &problem{http.StatusUnauthorized, "the cluster does not accept your credentials"}
	case apierrors.IsForbidden(err): // anonymous users may not even ask
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
