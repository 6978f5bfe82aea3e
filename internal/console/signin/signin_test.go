package signin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// newSignIn returns a SignIn with a provider that serves only a short discovery document and refuses every code.
func newSignIn(t *testing.T) (*SignIn, Site) {
	t.Helper()
	var issuer *httptest.Server
	issuer = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/openid-configuration" {
			http.Error(w, `{"error": "invalid_grant"}`, http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(strings.ReplaceAll(`{"issuer": "I", "authorization_endpoint": "I/auth", "token_endpoint": "I/token", "jwks_uri": "I/keys", "end_session_endpoint": "I/end"}`, "I", issuer.URL)))
	}))
	t.Cleanup(issuer.Close)
	s, err := New(Options{Issuer: issuer.URL, ClientID: "t9k", ClientSecret: "a secret", Client: issuer.Client(), Accepts: func(context.Context, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s, Site{URL: &url.URL{Scheme: "https", Host: "console.example.org"}, Cookie: "__Host-t9k"}
}

// asked sends a request to Ask. headers holds pairs of names and values.
func asked(s *SignIn, site Site, method, target string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Ask(w, r, site)
	return w.Result()
}

func TestWhoOpensAPageIsLedToTheProvider(t *testing.T) {
	s, site := newSignIn(t)
	html := []string{"Accept", "text/html"}
	for _, c := range []struct {
		method, target string
		headers        []string
		code           int
		back           string
	}{
		{http.MethodGet, "/queues?by=a%20b", []string{"Sec-Fetch-Mode", "navigate"}, http.StatusFound, "/queues?by=a%20b"},
		{http.MethodGet, "/", html, http.StatusFound, "/"},
		{http.MethodGet, "//evil.example.com/x", html, http.StatusFound, "/evil.example.com/x"},
		{http.MethodGet, `/%5c%5cevil.example.com`, html, http.StatusFound, "/evil.example.com"},
		{http.MethodGet, "/?q=" + strings.Repeat("x", 5000), html, http.StatusFound, "/"},
		{http.MethodGet, "/", []string{"Sec-Fetch-Mode", "cors", "Accept", "text/html"}, http.StatusUnauthorized, ""},
		{http.MethodGet, "/", []string{"Accept", "text/event-stream"}, http.StatusUnauthorized, ""},
		{http.MethodGet, "/api/v1/jobs", html, http.StatusUnauthorized, ""},
		{http.MethodHead, "/", html, http.StatusUnauthorized, ""},
		{http.MethodPost, "/submit", html, http.StatusUnauthorized, ""},
		{http.MethodDelete, "/", html, http.StatusUnauthorized, ""},
	} {
		answer := asked(s, site, c.method, c.target, c.headers...)
		if answer.StatusCode != c.code {
			t.Errorf("%s %.60s %v: %s", c.method, c.target, c.headers, answer.Status)
			continue
		}
		if c.back == "" {
			continue
		}
		to, err := answer.Location()
		if err != nil {
			t.Fatal(err)
		}
		q := to.Query()
		var a attempt
		if !open(s.box, "state", q.Get("state"), &a) || a.Back != c.back {
			t.Errorf("%.60s leads back to %q", c.target, a.Back)
		}
		if q.Get("redirect_uri") != "https://console.example.org/oidc/callback" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") != a.Nonce || q.Get("scope") != "openid profile email" {
			t.Errorf("the provider is asked with %v", q)
		}
		for _, cookie := range answer.Cookies() {
			if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" {
				t.Errorf("a cookie is %v", cookie)
			}
		}
	}
}

// TestOnlyTheBrowserThatBeganEndsASignIn verifies that invalid callbacks, such as callbacks of another browser, sign no
// user in.
func TestOnlyTheBrowserThatBeganEndsASignIn(t *testing.T) {
	s, site := newSignIn(t)
	begun := asked(s, site, http.MethodGet, "/", "Accept", "text/html")
	to, err := begun.Location()
	if err != nil {
		t.Fatal(err)
	}
	state, browser := to.Query().Get("state"), begun.Cookies()[0]
	var a attempt
	if !open(s.box, "state", state, &a) {
		t.Fatal("the state cannot be read")
	}
	old := a
	old.Until = time.Now().Add(-time.Second)
	for _, c := range []struct {
		what, state, cookie, query string
		code                       int
		says                       string
	}{
		{"no state", "", browser.Value, "&code=c", http.StatusBadRequest, "another browser"},
		{"a state of nobody", "AAAA", browser.Value, "&code=c", http.StatusBadRequest, "another browser"},
		{"a session as the state", seal(s.box, "session", a), browser.Value, "&code=c", http.StatusBadRequest, "another browser"},
		{"a browser without the cookie", state, "", "&code=c", http.StatusBadRequest, "another browser"},
		{"another browser", state, strings.Repeat("A", len(browser.Value)), "&code=c", http.StatusBadRequest, "another browser"},
		{"a late answer", seal(s.box, "state", old), browser.Value, "&code=c", http.StatusBadRequest, "too long"},
		{"a refusal", state, browser.Value, "&error=access_denied&error_description=%3Cb%3Eno%3C/b%3E", http.StatusForbidden, "access_denied: &lt;b&gt;no"},
		{"a code of nobody", state, browser.Value, "&code=c", http.StatusBadGateway, "invalid_grant"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/oidc/callback?state="+url.QueryEscape(c.state)+c.query, nil)
		if c.cookie != "" {
			r.AddCookie(&http.Cookie{Name: browser.Name, Value: c.cookie})
		}
		w := httptest.NewRecorder()
		if !s.Serve(w, r, site) {
			t.Fatal("the callback is not served")
		}
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s", c.what, w.Code, w.Body)
		}
		if len(w.Result().Cookies()) > 0 {
			t.Errorf("%s sets %v", c.what, w.Result().Cookies())
		}
	}
}

func TestSessionsOfAnySizeAreKeptInCookies(t *testing.T) {
	s, site := newSignIn(t)
	browser := map[string]*http.Cookie{}
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, c := range browser {
			r.AddCookie(c)
		}
		return r
	}
	take := func(w *httptest.ResponseRecorder) {
		for _, c := range w.Result().Cookies() {
			if len(c.String()) > 4096 {
				t.Errorf("a cookie has %d bytes", len(c.String()))
			}
			if browser[c.Name] = c; c.MaxAge < 0 {
				delete(browser, c.Name)
			}
		}
	}
	for _, size := range []int{10, 3000, 13000, 500} {
		token := strings.Repeat("x", size)
		w := httptest.NewRecorder()
		if err := remember(w, request(), site, seal(s.box, "session", token), time.Now().Add(time.Hour)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		take(w)
		if got := s.Token(request(), site); got != token {
			t.Errorf("%d bytes come back as %d, in %d cookies", size, len(got), len(browser))
		}
	}
	if err := remember(httptest.NewRecorder(), request(), site, strings.Repeat("x", maxParts*partSize+1), time.Now()); err == nil || !strings.Contains(err.Error(), "too large for cookies") {
		t.Errorf("a session that is too large: %v", err)
	}
	other, err := New(Options{ClientSecret: "another secret"})
	if err != nil {
		t.Fatal(err)
	}
	if other.Token(request(), site) != "" {
		t.Error("another secret opens a session")
	}
	browser[site.Cookie+partName(0)].Value += "A"
	if s.Token(request(), site) != "" {
		t.Error("a changed cookie is a session")
	}
	w := httptest.NewRecorder()
	out := request()
	out.Method, out.URL.Path = http.MethodPost, signOutPath
	if !s.Serve(w, out, site) || w.Code != http.StatusSeeOther {
		t.Errorf("signing out: %d", w.Code)
	}
	if take(w); len(browser) > 0 {
		t.Errorf("after signing out there are %v", browser)
	}
	w = httptest.NewRecorder()
	if !s.Serve(w, httptest.NewRequest(http.MethodGet, signedOutPath, nil), site) || !strings.Contains(w.Body.String(), "/end?client_id=t9k&amp;post_logout_redirect_uri=https%3A%2F%2Fconsole.example.org%2Foidc%2Fsigned-out") {
		t.Errorf("the page after signing out: %s", w.Body)
	}
}

func TestAProviderThatIsAwayIsAskedAgain(t *testing.T) {
	s, site := newSignIn(t)
	reach := s.Client
	s.Client = &http.Client{Transport: away{}}
	answer := asked(s, site, http.MethodGet, "/", "Accept", "text/html")
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while the provider is away: %s", answer.Status)
	}
	s.Client, s.failedAt = reach, s.failedAt.Add(-retryAfter)
	if answer := asked(s, site, http.MethodGet, "/", "Accept", "text/html"); answer.StatusCode != http.StatusFound {
		t.Errorf("once it is back: %s", answer.Status)
	}
}

// away is an http.RoundTripper that always fails.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no route to host")
}
