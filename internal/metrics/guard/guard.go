// Package guard restricts access to metrics. It asks the API server which user sends a request, and whether this user
// may make it. Start reading at New.
package guard

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Times for which the API server's answers to reviews are cached, and the timeout of one review.
const (
	authenticationTTL = time.Minute
	allowedTTL        = 5 * time.Minute
	deniedTTL         = 30 * time.Second
	reviewTimeout     = 10 * time.Second
)

// New returns a filter that passes on a request only if the API server allows its user to make it. config and client
// give access to the API server. The filter answers an invalid token with 401, as the components of Kubernetes do. The
// filter of controller-runtime answers it with 500, as if the program had failed.
func New(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	authentication, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making a client for token reviews: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making a client for access reviews: %w", err)
	}
	backoff := &wait.Backoff{Duration: time.Second / 2, Factor: 1.5, Jitter: 0.2, Steps: 5}
	users, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:               &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                authenticationTTL,
		TokenAccessReviewClient: authentication, TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("setting up the authentication of the metrics: %w", err)
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: authorization,
		AllowCacheTTL:             allowedTTL, DenyCacheTTL: deniedTTL,
		WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("setting up the authorization of the metrics: %w", err)
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return guard(log, users, rights, next), nil
	}, nil
}

// guard returns a handler that passes a request to next only if its user may make it.
func guard(log logr.Logger, users authenticator.Request, rights authorizer.Authorizer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sender, ok, err := users.AuthenticateRequest(r)
		if err != nil || !ok {
			// The authenticator returns the same error for an invalid token and for a failed review. The log shows
			// which of the two occurred.
			log.V(2).Info("A request has no valid user", "path", r.URL.Path, "error", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		decision, reason, err := rights.Authorize(r.Context(), authorizer.AttributesRecord{
			User: sender.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path})
		if err != nil {
			log.Error(err, "Cannot authorize a request for metrics", "user", sender.User.GetName(), "path", r.URL.Path)
			http.Error(w, "The API server could not be asked for the rights of the user", http.StatusInternalServerError)
			return
		}
		if decision != authorizer.DecisionAllow {
			log.V(2).Info("A user may not make a request", "user", sender.User.GetName(), "path", r.URL.Path, "reason", reason)
			http.Error(w, "Forbidden", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
