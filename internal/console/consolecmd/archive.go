package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/archive/recorder"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/archive/web"
	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/server"
)

// kept is an archive that is being written. The zero value is none.
type kept struct {
	store    *store.Store
	recorder *recorder.Recorder
}

// record opens an archive and records to it until ctx ends. Without an address there is none.
func record(ctx context.Context, config *rest.Config, archive *configv1alpha1.Archive) (*kept, error) {
	if archive.Address == "" {
		return &kept{}, nil
	}
	s, err := store.Open(ctx, archive.Address, store.Options{JobLogs: archive.MaxJobLogSize.Value(), AllLogs: archive.MaxLogSize.Value()})
	if err != nil {
		return nil, err
	}
	r, err := recorder.Start(ctx, recorder.Options{Config: config, Store: s})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &kept{s, r}, nil
}

// handler returns the handler of the archive; nil if there is none.
func (k *kept) handler(admit func(http.ResponseWriter, *http.Request) web.Access) http.Handler {
	if k.store == nil {
		return nil
	}
	return web.New(k.store, admit)
}

// history returns the archive for the pages of the console; nil if there is none. Like the API, they show a caller what the
// API server says that they may get.
func (k *kept) history() func(*server.Caller) (server.History, error) {
	if k.store == nil {
		return nil
	}
	return func(c *server.Caller) (server.History, error) {
		return web.NewReader(k.store, web.Self{Objects: c.Objects}), nil
	}
}

// collect adds the metrics of the archive to a registry.
func (k *kept) collect(registry *prometheus.Registry) error {
	if k.recorder == nil {
		return nil
	}
	if err := registry.Register(k.recorder); err != nil {
		return fmt.Errorf("registering the metrics of the archive: %w", err)
	}
	return nil
}

// settled is closed once the archive knows everything that exists; nil if there is none.
func (k *kept) settled() <-chan struct{} {
	if k.recorder == nil {
		return nil
	}
	return k.recorder.Settled()
}

// close waits for the end of the recorder, which is after that of its context, and closes the archive.
func (k *kept) close(ctx context.Context) {
	if k.store == nil {
		return
	}
	k.recorder.Wait()
	if err := k.store.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot close the archive")
	}
}

// callerMay admits to the archive whom the console has admitted.
func callerMay(w http.ResponseWriter, r *http.Request) web.Access {
	caller := server.CallerOf(r.Context())
	if caller == nil || caller.Objects == nil {
		http.Error(w, "This request was not admitted.", http.StatusUnauthorized)
		return nil
	}
	return web.Self{Objects: caller.Objects}
}

// authenticated is the group that the API server adds to all users whom it knows.
const authenticated = "system:authenticated"

// clusterUsers admits to the archive whoever the API server would know: the owners of verified client certificates, as
// the API server names them, and those of tokens.
func clusterUsers(reviews *access.Reviews) func(http.ResponseWriter, *http.Request) web.Access {
	return func(w http.ResponseWriter, r *http.Request) web.Access {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			subject := r.TLS.VerifiedChains[0][0].Subject
			groups := append([]string{authenticated}, subject.Organization...)
			return reviewed{reviews, &access.User{UserInfo: authentication.UserInfo{Username: subject.CommonName, Groups: groups},
				ID: strings.Join(append([]string{subject.CommonName}, groups...), "\x00")}}
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			http.Error(w, "This request has neither a client certificate nor a bearer token.", http.StatusUnauthorized)
			return nil
		}
		who, err := reviews.User(r.Context(), strings.TrimSpace(token))
		switch {
		case errors.Is(err, access.ErrToken):
			http.Error(w, "The cluster does not accept the credentials of this request. They may have expired.", http.StatusUnauthorized)
			return nil
		case err != nil:
			http.Error(w, "The console cannot find out who you are: "+err.Error(), http.StatusServiceUnavailable)
			return nil
		}
		return reviewed{reviews, who}
	}
}

// reviewed is the access of a user whose rights the API server reviews.
type reviewed struct {
	reviews *access.Reviews
	user    *access.User
}

// MayGet implements web.Access.
func (u reviewed) MayGet(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
	of, part, _ := strings.Cut(resource.Resource, "/")
	return u.reviews.May(ctx, u.user, &authorization.ResourceAttributes{Verb: "get", Group: resource.Group, Resource: of, Subresource: part, Namespace: namespace})
}
