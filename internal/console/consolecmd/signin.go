package consolecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	certutil "k8s.io/client-go/util/cert"

	"tensorstack.dev/batch/internal/console/access"
	"tensorstack.dev/batch/internal/console/signin"
)

// signInOptions are the settings of the sign-in. Their names are those of the API server's flags, where it has them.
type signInOptions struct {
	issuer, clientID, secretFile, caFile string
	extraScopes                          []string
}

func (o *signInOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.issuer, "oidc-issuer-url", "", "provider of OpenID Connect that users sign in with, such as https://login.example.org, which the API server must trust; unset: a proxy signs them in; needs --url")
	f.StringVar(&o.clientID, "oidc-client-id", "", "ID of the console at the provider")
	f.StringVar(&o.secretFile, "oidc-client-secret-file", "", "file with the secret of the console at the provider")
	f.StringSliceVar(&o.extraScopes, "oidc-extra-scope", nil, "scope to ask for in addition to openid, profile and email, such as groups; can be repeated")
	f.StringVar(&o.caFile, "oidc-ca-file", "", "file with the certificate authority of the provider; unset: those that the system trusts")
}

// providerTime is the longest time that a request to the provider may take.
const providerTime = 10 * time.Second

// new returns the sign-in; nil if there is none.
func (o *signInOptions) new(reviews *access.Reviews, addressed bool, where string) (*signin.SignIn, error) {
	if err := o.check(addressed); err != nil || o.issuer == "" {
		return nil, err
	}
	secret, err := os.ReadFile(o.secretFile)
	if err != nil {
		return nil, fmt.Errorf("reading the secret of the console at the provider: %w", err)
	}
	text := strings.TrimSpace(string(secret))
	if text == "" {
		return nil, fmt.Errorf("reading the secret of the console at the provider: %s is empty", o.secretFile)
	}
	provider, err := o.client()
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
	return signin.New(signin.Options{Issuer: o.issuer, ClientID: o.clientID, ClientSecret: text, ExtraScopes: o.extraScopes, Client: provider, Accepts: accepts, Where: where})
}

// check returns what is wrong with the flags. addressed is true if the console knows its addresses.
func (o *signInOptions) check(addressed bool) error {
	if o.issuer == "" {
		if o.clientID != "" || o.secretFile != "" || o.caFile != "" || len(o.extraScopes) > 0 {
			return errors.New("--oidc-client-id, --oidc-client-secret-file, --oidc-extra-scope and --oidc-ca-file need --oidc-issuer-url")
		}
		return nil
	}
	u, err := url.Parse(o.issuer)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("--oidc-issuer-url %q is no address such as https://login.example.org", o.issuer)
	case o.clientID == "" || o.secretFile == "":
		return errors.New("--oidc-issuer-url needs --oidc-client-id and --oidc-client-secret-file")
	case !addressed:
		return errors.New("--oidc-issuer-url needs --url: the provider leads users back to it")
	}
	return nil
}

// client returns the HTTP client that reaches the provider.
func (o *signInOptions) client() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.caFile != "" {
		pool, err := certutil.NewPool(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority of the provider: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return &http.Client{Transport: transport, Timeout: providerTime}, nil
}
