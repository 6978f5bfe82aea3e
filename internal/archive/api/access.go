package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

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
			if allowed, err = s.access.MayGet(ctx, &kind, p.Namespace); err != nil {
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
type Self struct {
	Client authorizationclient.SelfSubjectAccessReviewsGetter
}

// MayGet implements Access.
func (s Self) MayGet(ctx context.Context, kind *kinds.Kind, namespace string) (bool, error) {
	review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
		Verb: "get", Group: batch.GroupVersion.Group, Resource: kind.Plural, Namespace: namespace}}}
	answer, err := s.Client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return false, &problem{http.StatusUnauthorized, "the cluster does not accept your credentials"}
	case apierrors.IsForbidden(err): // anonymous users may not even ask
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking what you may see: %w", err)
	}
	return answer.Status.Allowed, nil
}

// Bearer returns a function for New that admits whoever has a token of the API server that config leads to. Credentials in
// config are not used.
func Bearer(config *rest.Config) func(http.ResponseWriter, *http.Request) Access {
	return func(w http.ResponseWriter, r *http.Request) Access {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, &problem{http.StatusUnauthorized, "the request has no bearer token"})
			return nil
		}
		c := rest.AnonymousClientConfig(config)
		c.BearerToken, c.QPS = token, -1
		client, err := authorizationclient.NewForConfig(c)
		if err != nil {
			fail(w, fmt.Errorf("making a client: %w", err))
			return nil
		}
		return Self{client}
	}
}
