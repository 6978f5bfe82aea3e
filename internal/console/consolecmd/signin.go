package consolecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/signin"
)

// providerTime is the timeout of a request to the provider.
const providerTime = 10 * time.Second

// newSignIn returns the sign-in with the provider of the settings. where names the cluster.
func newSignIn(o *configv1alpha1.SignIn, reviews *access.Reviews, where string) (*signin.SignIn, error) {
	secret, err := os.ReadFile(o.ClientSecretFile)
	if err != nil {
		return nil, fmt.Errorf("reading the secret of the console at the provider: %w", err)
	}
	text := strings.TrimSpace(string(secret))
	if text == "" {
		return nil, fmt.Errorf("reading the secret of the console at the provider: %s is empty", o.ClientSecretFile)
	}
	provider, err := providerClient(o.CAFile)
	if err != nil {
		return nil, err
	}
	accepts := func(ctx context.Context, token string) error {
		_, err := reviews.User(ctx, token)
		if errors.Is(err, access.ErrToken) {
			return signin.ErrRefused
		}
		return err
	}
	return signin.New(signin.Options{Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: text, ExtraScopes: o.ExtraScopes, Client: provider, Accepts: accepts, Where: where})
}

// providerClient returns the HTTP client for requests to the provider.
func providerClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		pool, err := certutil.NewPool(caFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority of the provider: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return &http.Client{Transport: transport, Timeout: providerTime}, nil
}
