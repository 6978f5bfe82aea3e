package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/server"
	"tensorstack.dev/batch/internal/console/signin"
	"tensorstack.dev/batch/internal/origin"
)

// Admission implements server.Admission. It admits requests with a token that the API server accepts, and requests for
// static files. It refuses requests for hosts that URLs does not allow, and requests from pages of other origins.
type Admission struct {
	Reviews *Reviews
	// Config is the client configuration for the API server. Its credentials are not used.
	Config *rest.Config
	// URLs are the addresses under which browsers reach the console. If URLs is empty, every host name is accepted.
	URLs []*url.URL
	// SignIn signs in users without a bearer token; nil if a proxy authenticates users. It requires URLs.
	SignIn *signin.SignIn
}

// Admit implements server.Admission.
func (a *Admission) Admit(w http.ResponseWriter, r *http.Request) *server.Caller {
	site, addressed := a.site(r)
	switch {
	case !addressed:
		http.Error(w, "This console answers only under the addresses that its setting server.urls names.", http.StatusForbidden)
		return nil
	case !origin.Same(r, a.origins(r)...):
		http.Error(w, "This request comes from another page.", http.StatusForbidden)
		return nil
	case strings.HasPrefix(r.URL.Path, "/static/"):
		return &server.Caller{Rights: nothing{}}
	}
	token := bearer(r)
	signIn := a.SignIn != nil && token == ""
	if signIn {
		if a.SignIn.Serve(w, r, site) {
			return nil
		}
		token = a.SignIn.Token(r, site)
	}
	caller, err := a.caller(r.Context(), token)
	switch {
	case errors.Is(err, ErrToken) && signIn:
		a.SignIn.Ask(w, r, site)
		return nil
	case errors.Is(err, ErrToken) && token == "":
		refuse(w, "The console does not know who you are: this request has no bearer token.")
		return nil
	case errors.Is(err, ErrToken):
		refuse(w, "The cluster does not accept the credentials of this request. They may have expired.")
		return nil
	case err != nil:
		http.Error(w, "The console cannot find out who you are: "+err.Error(), http.StatusServiceUnavailable)
		return nil
	}
	caller.Secure, caller.Cookie, caller.SignOut = site.URL.Scheme == "https", site.Cookie, signIn
	return caller
}

// site returns the site of the console that the Host header of a request selects. addressed is true if the site is one
// of URLs, or if there are no URLs.
func (a *Admission) site(r *http.Request) (site signin.Site, addressed bool) {
	site.URL = &url.URL{Scheme: "http", Host: r.Host}
	if i := slices.IndexFunc(a.URLs, func(u *url.URL) bool { return strings.EqualFold(u.Host, r.Host) }); i >= 0 {
		site.URL = a.URLs[i]
	} else if r.TLS != nil {
		site.URL.Scheme = "https"
	}
	site.Cookie = "t9k"
	if site.URL.Scheme == "https" {
		site.Cookie = "__Host-t9k"
	}
	return site, len(a.URLs) == 0 || slices.Contains(a.URLs, site.URL)
}

// origins returns the origins of the pages that may send a request.
func (a *Admission) origins(r *http.Request) []string {
	if len(a.URLs) == 0 {
		return []string{"http://" + r.Host, "https://" + r.Host}
	}
	var all []string
	for _, u := range a.URLs {
		if strings.EqualFold(u.Host, r.Host) {
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	return all
}

// bearer returns the bearer token of a request's Authorization header; empty if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, why, http.StatusUnauthorized)
}

// caller returns the owner of a token with clients that use the token; ErrToken if the token is empty or not valid.
func (a *Admission) caller(ctx context.Context, token string) (*server.Caller, error) {
	if token == "" {
		return nil, ErrToken
	}
	user, err := a.Reviews.User(ctx, token)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(a.Config)
	config.BearerToken = token
	config.QPS = -1
	config.UserAgent = "t9k-console"
	config.WarningHandler = rest.NoWarnings{}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	rights := &Rights{a.Reviews, user}
	return &server.Caller{Name: user.Username, ID: user.ID, Rights: rights, Reads: rights, Objects: objects, Core: core,
		Standing: &standing{a.Reviews, token, user.ID}}, nil
}

// nothing implements live.Rights for a caller who is not authenticated.
type nothing struct{}

// List implements live.Rights.
func (nothing) List(schema.GroupResource, []string) live.Scope { return live.Scope{} }

// standing implements server.Standing for the owner of a token. user is the User.ID of the owner at the beginning.
type standing struct {
	reviews *Reviews
	token   string
	user    string
}

// Interval implements server.Standing.
func (s *standing) Interval() time.Duration { return s.reviews.TTL }

// Check implements server.Standing. A failed review also ends the stream: the browser then opens the stream again.
func (s *standing) Check(ctx context.Context, logsOf string) error {
	user, err := s.reviews.User(ctx, s.token)
	switch {
	case err != nil:
		return err
	case user.ID != s.user:
		return errors.New("the owner of the token has changed")
	case logsOf == "":
		return nil
	}
	may, err := s.reviews.May(ctx, user, &authorization.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log", Namespace: logsOf})
	if err != nil {
		return err
	}
	if !may {
		return errors.New("the user may not read logs")
	}
	return nil
}
