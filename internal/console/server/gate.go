package server

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"tensorstack.dev/batch/internal/console/ticket"
	"tensorstack.dev/batch/internal/origin"
	"tensorstack.dev/batch/internal/tensorboard/forward"
)

// Gate admits the browser of one user on this machine. It exchanges a one-time token in the first URL for a cookie. It
// checks the Host and Origin headers, so that other web pages and DNS rebinding cannot get in.
type Gate struct {
	// host is the address HOST:PORT of the console. alias is its address under the name localhost, which redirects to
	// host.
	host, alias string
	cookie      string
	// printer is the command that prints new URLs.
	printer string
	// key is the key that issues tokens; tokens issued before since are refused. If key is nil, there is only one
	// token, issued at since.
	key   ticket.Key
	since time.Time
	now   func() time.Time

	mu sync.Mutex
	// token is the only token if there is no key; empty after it was used. session is the value of the session cookie.
	token   string
	session string
	// used holds the used tokens of the key that have not expired, with the times when they were issued.
	used map[string]time.Time
}

// TokenLifetime is how long a token can open a session. It is limited because the URL remains in the scrollback of the
// terminal and in the logs of programs that started the command.
const TokenLifetime = 15 * time.Minute

// Local implements Admission for the browser of one user on this machine. The console acts with its own rights.
type Local struct {
	*Gate
	// Objects and Core are clients with the rights of the console.
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
}

// Admit implements Admission. All admitted requests have the same caller, who acts with Objects and Core.
func (l *Local) Admit(w http.ResponseWriter, r *http.Request) *Caller {
	if !l.admit(w, r) {
		return nil
	}
	return &Caller{Objects: l.Objects, Core: l.Core, Cookie: l.cookie}
}

// NewGate returns a gate with one token, for the address HOST:PORT of the server. The cookie's name contains port,
// because browsers send cookies to all ports of a host. The gate redirects requests under the name localhost to the
// address: TensorBoards are served under that name and must not receive the cookie.
func NewGate(port, host string) *Gate {
	return &Gate{host: net.JoinHostPort(host, port), alias: net.JoinHostPort(forward.Host, port), cookie: "t9k-" + port, printer: "t9k ui",
		token: secret(), session: secret(), since: time.Now(), now: time.Now}
}

// NewKeyGate returns a gate for one-time tokens that are issued with a key from now on. Session cookies remain valid
// after a restart of the console with the same key. printer is the command that prints addresses with tokens.
func NewKeyGate(key ticket.Key, printer, port, host string) *Gate {
	g := NewGate(port, host)
	g.token, g.session = "", base64.RawURLEncoding.EncodeToString(key.Derive("session"))
	g.key, g.printer, g.used = key, printer, map[string]time.Time{}
	return g
}

// redeem consumes a token and reports whether the token was valid. A token is valid once, for TokenLifetime after its
// issue.
func (g *Gate) redeem(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	oldest := g.now().Add(-TokenLifetime)
	if g.key == nil {
		good := g.token != "" && !g.since.Before(oldest) && subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) == 1
		if good {
			g.token = ""
		}
		return good
	}
	issued, err := g.key.Issued(token)
	if _, used := g.used[token]; used || err != nil || issued.Before(g.since) || issued.Before(oldest) {
		return false
	}
	maps.DeleteFunc(g.used, func(_ string, issued time.Time) bool { return issued.Before(oldest) })
	g.used[token] = issued
	return true
}

// Token returns the token for the first URL; empty if the token has been used, or if a key issues the tokens.
func (g *Gate) Token() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// admit reports whether a request is admitted. If it returns false, it has written the response.
func (g *Gate) admit(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Host == g.alias && r.Method == http.MethodGet:
		http.Redirect(w, r, "http://"+g.host+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		return false
	case r.Host != g.host:
		http.Error(w, "This console answers only under the address that "+g.printer+" has printed.", http.StatusForbidden)
		return false
	case !origin.Same(r, "http://"+r.Host):
		http.Error(w, "This request comes from another page.", http.StatusForbidden)
		return false
	}
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet && r.URL.Path == "/" {
		g.open(w, r, token)
		return false
	}
	if !g.hasSession(r) {
		http.Error(w, "This browser is not admitted: open an address that "+g.printer+" prints. Each works once.", http.StatusUnauthorized)
		return false
	}
	return true
}

// open starts a session if the token is valid. It redirects to the first page if the browser then has a session, and
// otherwise refuses the request.
func (g *Gate) open(w http.ResponseWriter, r *http.Request, token string) {
	switch {
	case g.redeem(token):
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	case !g.hasSession(r):
		http.Error(w, "This address has been used, or is too old: it works once. Start "+g.printer+" again for a new one.", http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (g *Gate) hasSession(r *http.Request) bool {
	c, err := r.Cookie(g.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.session)) == 1
}
