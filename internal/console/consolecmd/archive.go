package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	authentication "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/archive/recorder"
	"tensorstack.dev/batch/internal/archive/store"
	"tensorstack.dev/batch/internal/archive/web"
	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/server"
)

// kept is an open archive with its recorder. The zero value means no archive.
type kept struct {
	store    *store.Store
	recorder *recorder.Recorder
}

// record opens an archive and starts a recorder that runs until ctx ends. If the settings have no address, it returns a
// zero kept.
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

// handler returns the HTTP handler of the archive; nil if there is no archive.
func (k *kept) handler(admit func(http.ResponseWriter, *http.Request) web.Access) http.Handler {
	if k.store == nil {
		return nil
	}
	return web.New(k.store, admit)
}

// history returns a function that opens the archive for the pages of a caller; nil if there is no archive. Like the
// API, the pages show only records that the API server allows the caller to get.
func (k *kept) history() func(*server.Caller) (server.History, error) {
	if k.store == nil {
		return nil
	}
	return func(c *server.Caller) (server.History, error) {
		return web.NewReader(k.store, accessOf(c)), nil
	}
}

// collect registers the metrics of the archive.
func (k *kept) collect(registry *prometheus.Registry) error {
	if k.recorder == nil {
		return nil
	}
	if err := registry.Register(k.recorder); err != nil {
		return fmt.Errorf("registering the metrics of the archive: %w", err)
	}
	return nil
}

// settled returns a channel that is closed when the recorder has read all existing objects; nil if there is no
// archive.
func (k *kept) settled() <-chan struct{} {
	if k.recorder == nil {
		return nil
	}
	return k.recorder.Settled()
}

// close waits for the recorder, which stops after its context has ended, and closes the archive.
func (k *kept) close(ctx context.Context) {
	if k.store == nil {
		return
	}
	k.recorder.Wait()
	if err := k.store.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot close the archive")
	}
}

// callerMay returns what the caller of a request may see of the archive. It refuses requests that the console has not
// admitted, and requests of callers without clients.
func callerMay(w http.ResponseWriter, r *http.Request) web.Access {
	caller := server.CallerOf(r.Context())
	if caller == nil || caller.Objects == nil {
		http.Error(w, "This request was not admitted.", http.StatusUnauthorized)
		return nil
	}
	return accessOf(caller)
}

// accessOf returns what a caller may see of the archive.
func accessOf(c *server.Caller) web.Access {
	if c.Reads != nil {
		return c.Reads
	}
	return web.Self{Objects: c.Objects}
}

// authenticated is the group to which the API server adds all authenticated users.
const authenticated = "system:authenticated"

// clusterUsers admits the users whom the API server would authenticate: owners of verified client certificates, with
// the same names and groups, and owners of tokens.
func clusterUsers(reviews *access.Reviews) func(http.ResponseWriter, *http.Request) web.Access {
	return func(w http.ResponseWriter, r *http.Request) web.Access {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			subject := r.TLS.VerifiedChains[0][0].Subject
			groups := append([]string{authenticated}, subject.Organization...)
			return &access.Rights{Reviews: reviews, User: &access.User{UserInfo: authentication.UserInfo{Username: subject.CommonName, Groups: groups},
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
		return &access.Rights{Reviews: reviews, User: who}
	}
}
