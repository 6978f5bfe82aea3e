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

// Gate admits the browser of one user on this machine. A token in the first address, which works once, becomes a cookie.
// The names of host and origin are checked, so that neither another page nor a name that leads to this machine gets in.
type Gate struct {
	// host is the address HOST:PORT of the console, and alias another name of it.
	host, alias string
	cookie      string
	// printer is the command that prints new addresses.
	printer string
	// key issues tokens, of which those before since are refused; nil if there is one token, which was made at since.
	key   ticket.Key
	since time.Time
	now   func() time.Time

	mu sync.Mutex
	// token is the token that opens the next session; empty once it was used.
	token   string
	session string
	// used has the tokens of the key that were used and are not too old, with the times when they were issued.
	used map[string]time.Time
}

// TokenLifetime is how long a token can open a session. An address stays in the scrollback of a terminal and in the log
// of whatever has started the command.
const TokenLifetime = 15 * time.Minute

// Local admits the browser of one user on this machine, for whom the console acts with its own rights.
type Local struct {
	*Gate
	// Objects and Core act with the rights of the user.
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
}

// Admit implements Admission.
func (l *Local) Admit(w http.ResponseWriter, r *http.Request) *Caller {
	if !l.admit(w, r) {
		return nil
	}
	return &Caller{Objects: l.Objects, Core: l.Core, Cookie: l.cookie}
}

// NewGate returns a gate for the address HOST:PORT of the server. port makes the cookie's name unique, because browsers
// send cookies to all ports of a host. The name localhost leads to the address: TensorBoards are served under that name,
// and must not get the cookie.
func NewGate(port, host string) *Gate {
	return &Gate{host: net.JoinHostPort(host, port), alias: net.JoinHostPort(forward.Host, port), cookie: "t9k-" + port, printer: "t9k ui",
		token: secret(), session: secret(), since: time.Now(), now: time.Now}
}

// NewKeyGate returns a gate for tokens that are issued with a key from now on, each of which works once. Browsers stay
// admitted when the console starts again. printer is the command that prints addresses with tokens.
func NewKeyGate(key ticket.Key, printer, port, host string) *Gate {
	g := NewGate(port, host)
	g.token, g.session = "", base64.RawURLEncoding.EncodeToString(key.Derive("session"))
	g.key, g.printer, g.used = key, printer, map[string]time.Time{}
	return g
}

// redeem reports whether a token opens a session, which it does once and while it is not too old.
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

// Token returns the token for the first address.
func (g *Gate) Token() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// admit reports whether a request may go on. If not, it has been answered.
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

// open starts the session of the one who knows the token, and leads to the first page.
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
