// Package signin signs users in with an OpenID Connect provider, by the authorization code flow with PKCE. The ID
// token, which the API server accepts, is stored in encrypted cookies. The console stores no sessions, so its replicas
// share no state. Start reading at SignIn.Ask.
package signin

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/view"
)

// Options configure the sign-in.
type Options struct {
	// Issuer is the URL of the provider, such as https://login.example.org.
	Issuer string
	// ClientID and ClientSecret identify the console at the provider. The encryption key of the cookies is derived from
	// the secret, so replacing the secret signs all users out.
	ClientID, ClientSecret string
	// ExtraScopes are requested in addition to openid, profile and email.
	ExtraScopes []string
	// Client is the HTTP client for requests to the provider.
	Client *http.Client
	// Accepts returns nil if the cluster accepts a token, ErrRefused if the cluster refuses it, and another error if
	// the cluster cannot be asked.
	Accepts func(ctx context.Context, token string) error
	// Where is the name of the cluster on pages.
	Where string
}

// ErrRefused means that the cluster does not accept the provider's token.
var ErrRefused = errors.New("the cluster does not accept the token")

// SignIn signs users in and out. It is safe for concurrent use.
type SignIn struct {
	Options
	box   cipher.AEAD
	pages *page.Renderer

	mu    sync.Mutex
	known *provider
	// failed is the last error of discovery, and failedAt its time.
	failed   error
	failedAt time.Time
}

// provider is the discovery document of the issuer.
type provider struct {
	*oidc.Provider
	// EndSession is the URL at which users sign out of the provider; empty if the provider has none.
	EndSession string `json:"end_session_endpoint"`
}

// Site is the URL at which a browser reaches the console, with the prefix of its cookie names.
type Site struct {
	URL    *url.URL
	Cookie string
}

func (s Site) secure() bool { return s.URL.Scheme == "https" }

func (s Site) address(path string) string {
	return (&url.URL{Scheme: s.URL.Scheme, Host: s.URL.Host, Path: path}).String()
}

// Paths that SignIn serves.
const (
	callbackPath  = "/oidc/callback"
	signOutPath   = "/oidc/logout"
	signedOutPath = "/oidc/signed-out"
)

const (
	// patience is how long a user may take to sign in.
	patience = 10 * time.Minute
	// discoveryTime is the timeout of the provider's discovery, and retryAfter is how long a failure is cached.
	discoveryTime, retryAfter = 10 * time.Second, 3 * time.Second
	// maxReturn is the largest length of the URL to return to after the sign-in, because providers limit the size
	// of state.
	maxReturn = 600
)

// New returns a SignIn. It does not contact the provider.
func New(o Options) (*SignIn, error) {
	box, err := newBox(o.ClientSecret)
	if err != nil {
		return nil, err
	}
	return &SignIn{Options: o, box: box, pages: page.New()}, nil
}

// Serve answers the requests of the sign-in, and reports whether the request was one of them. Requests for its paths
// with other methods are not among them.
func (s *SignIn) Serve(w http.ResponseWriter, r *http.Request, site Site) bool {
	switch {
	case r.URL.Path == callbackPath && r.Method == http.MethodGet:
		s.callback(w, r, site)
	case r.URL.Path == signOutPath && r.Method == http.MethodPost:
		forget(w, r, site)
		http.Redirect(w, r, signedOutPath, http.StatusSeeOther)
	case r.URL.Path == signedOutPath && r.Method == http.MethodGet:
		s.signedOut(w, r, site)
	default:
		return false
	}
	return true
}

// Ask answers an unauthenticated request. It redirects the browser to the provider if the request opens a page. If the
// request submits a form, it shows a page that says that the session has ended. It refuses requests of scripts and
// programs.
func (s *SignIn) Ask(w http.ResponseWriter, r *http.Request, site Site) {
	mode, html := r.Header.Get("Sec-Fetch-Mode"), strings.Contains(r.Header.Get("Accept"), "text/html")
	opens := mode == "navigate" || mode == "" && html
	switch {
	case r.Method == http.MethodGet && opens && !strings.HasPrefix(r.URL.Path, "/api/"):
		s.lead(w, r, site)
	case r.Method == http.MethodPost && opens:
		s.show(w, http.StatusUnauthorized, &page.Problem{Title: "Your session has ended", Text: "Nothing was done. Sign in again in another tab, then reload this page to send the form again.",
			Links: []view.Link{{Text: "Sign in again in another tab", Href: "/"}}, Apart: true})
	default:
		http.Error(w, "You are not signed in, or your session has ended.", http.StatusUnauthorized)
	}
}

// lead redirects a browser to the provider, which redirects it back to the requested page, or to the first page if the
// URL is longer than maxReturn.
func (s *SignIn) lead(w http.ResponseWriter, r *http.Request, site Site) {
	p, err := s.provider(r.Context())
	if err != nil {
		s.showMessage(w, http.StatusServiceUnavailable, "You cannot sign in now", "The provider "+s.Issuer+" cannot be reached: "+err.Error())
		return
	}
	// The path must not begin with two slashes, because the redirect would then go to another host.
	back := (&url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, `/\`), RawQuery: r.URL.RawQuery}).String()
	if len(back) > maxReturn {
		back = "/"
	}
	a := attempt{Verifier: oauth2.GenerateVerifier(), Nonce: rand.Text(), Browser: browserOf(w, r, site), Back: back, Until: time.Now().Add(patience)}
	http.Redirect(w, r, s.client(p, site).AuthCodeURL(seal(s.box, "state", a), oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusFound)
}

// attempt is the state of a sign-in that the callback needs. The provider passes the sealed attempt back as the
// parameter state.
type attempt struct {
	Verifier, Nonce string
	// Browser is the secret of the browser that started the sign-in, so that no other browser can complete it.
	Browser string
	Back    string
	Until   time.Time
}

// client returns the console as a client of the provider.
func (s *SignIn) client(p *provider, site Site) *oauth2.Config {
	return &oauth2.Config{ClientID: s.ClientID, ClientSecret: s.ClientSecret, Endpoint: p.Endpoint(), RedirectURL: site.address(callbackPath),
		Scopes: append([]string{oidc.ScopeOpenID, "profile", "email"}, s.ExtraScopes...)}
}

// provider returns the discovery document of the issuer. It fetches the document once. After a failure, it returns the
// same error for retryAfter before it tries again.
func (s *SignIn) provider(ctx context.Context) (*provider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil {
		return s.known, nil
	}
	if time.Since(s.failedAt) < retryAfter {
		return nil, s.failed
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(context.WithoutCancel(ctx), s.Client), discoveryTime)
	defer cancel()
	p := &provider{}
	var err error
	if p.Provider, err = oidc.NewProvider(ctx, s.Issuer); err == nil {
		err = p.Claims(p)
	}
	if err != nil {
		s.failed, s.failedAt = err, time.Now()
		return nil, err
	}
	s.known = p
	return p, nil
}

// callback completes a sign-in.
func (s *SignIn) callback(w http.ResponseWriter, r *http.Request, site Site) {
	again := view.Link{Text: "Sign in again", Href: "/"}
	q := r.URL.Query()
	var a attempt
	if !open(s.box, "state", q.Get("state"), &a) || time.Now().After(a.Until) || !isBrowser(r, site, a.Browser) {
		s.showMessage(w, http.StatusBadRequest, "This sign-in cannot be completed", "It took too long, or began in another browser or at another address of the console.", again)
		return
	}
	again.Href = a.Back
	if reason := q.Get("error"); reason != "" {
		s.showMessage(w, http.StatusForbidden, "You are not signed in", strings.TrimSuffix("The provider says: "+reason+": "+q.Get("error_description"), ": "), again)
		return
	}
	token, until, err := s.redeem(r.Context(), site, &a, q.Get("code"))
	if err != nil {
		s.showMessage(w, http.StatusBadGateway, "You are not signed in", "The answer of the provider is of no use: "+err.Error(), again)
		return
	}
	switch err := s.Accepts(r.Context(), token); {
	case errors.Is(err, ErrRefused):
		s.showMessage(w, http.StatusForbidden, "The cluster does not know you", "The provider has signed you in, but the cluster does not accept its token. The API server must trust the issuer "+s.Issuer+
			" with the audience "+s.ClientID+": an administrator sets this in its AuthenticationConfiguration.", again)
		return
	case err != nil:
		s.showMessage(w, http.StatusServiceUnavailable, "You are not signed in", "The console cannot find out who you are: "+err.Error(), again)
		return
	}
	if err := remember(w, r, site, seal(s.box, "session", token), until); err != nil {
		s.showMessage(w, http.StatusBadGateway, "You are not signed in", err.Error(), again)
		return
	}
	http.Redirect(w, r, a.Back, http.StatusFound)
}

// redeem exchanges an authorization code for an ID token, and returns the token with its expiry time.
func (s *SignIn) redeem(ctx context.Context, site Site, a *attempt, code string) (token string, until time.Time, err error) {
	p, err := s.provider(ctx)
	if err != nil {
		return "", until, err
	}
	ctx = oidc.ClientContext(ctx, s.Client)
	answer, err := s.client(p, site).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return "", until, err
	}
	token, _ = answer.Extra("id_token").(string)
	if token == "" {
		return "", until, errors.New("it has no id_token")
	}
	id, err := p.Verifier(&oidc.Config{ClientID: s.ClientID}).Verify(ctx, token)
	if err != nil {
		return "", until, err
	}
	if id.Nonce != a.Nonce {
		return "", until, errors.New("its id_token is for another sign-in")
	}
	return token, id.Expiry, nil
}

// signedOut shows that the user is signed out. If the provider has an HTTPS address for signing out, the page links to
// it, because the provider's own session would otherwise sign the user in again without credentials.
func (s *SignIn) signedOut(w http.ResponseWriter, r *http.Request, site Site) {
	links := []view.Link{{Text: "Sign in", Href: "/"}}
	if p, err := s.provider(r.Context()); err == nil && p.EndSession != "" {
		if end, err := url.Parse(p.EndSession); err == nil && end.Scheme == "https" {
			q := end.Query()
			q.Set("client_id", s.ClientID)
			q.Set("post_logout_redirect_uri", site.address(signedOutPath))
			end.RawQuery = q.Encode()
			links = append(links, view.Link{Text: "Sign out of " + end.Host + " too", Href: end.String()})
		}
	}
	s.showMessage(w, http.StatusOK, "You are signed out", "This browser is no longer signed in to the console.", links...)
}

// showMessage answers with a page that has a title and a text.
func (s *SignIn) showMessage(w http.ResponseWriter, code int, title, text string, links ...view.Link) {
	s.show(w, code, &page.Problem{Title: title, Text: text, Links: links})
}

func (s *SignIn) show(w http.ResponseWriter, code int, p *page.Problem) {
	html, err := s.pages.Page(page.Frame{Title: p.Title, Where: s.Where, Bare: true}, "problem", p, time.Now())
	if err != nil {
		http.Error(w, fmt.Sprintf("rendering the page: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(html))
}
