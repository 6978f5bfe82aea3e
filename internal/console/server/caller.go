package server

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/steer"
)

// Admission admits requests.
type Admission interface {
	// Admit returns who makes a request. If it returns nil, it has answered the request.
	Admit(w http.ResponseWriter, r *http.Request) *Caller
}

// Caller is who makes a request: what they may see, and clients that act with their rights.
type Caller struct {
	// Name is the name that pages show; empty if the console has one user.
	Name string
	// ID is the same for requests that may share a stream, because they may see the same.
	ID string
	// Rights tell what they may list; nil if that is what the console itself may list.
	Rights live.Rights
	// Objects and Core act with their rights.
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
	// Cookie is how the names of the console's cookies begin. Secure is true if they are sent over TLS only.
	Cookie string
	Secure bool
	// SignOut is true if they have signed in to the console, and can sign out.
	SignOut bool
	// Standing is what can end while a stream is open; nil for nothing.
	Standing Standing
}

// Standing is what a caller's streams depend on.
type Standing interface {
	// Check returns an error once the caller is no longer admitted, or may no longer read the logs of a namespace. The
	// empty namespace stands for no logs.
	Check(ctx context.Context, logsOf string) error
	// Interval is how often a stream checks.
	Interval() time.Duration
}

type callerKey struct{}

// CallerOf returns who makes a request that was admitted; nil for any other.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// visit is a request with who makes it. Its Cache hides that of the server, so that no page shows more than its caller
// may see.
type visit struct {
	*Server
	*Caller
	Cache *live.View
	steer steer.Client
}

// handle registers a handler of requests that were admitted.
func (s *Server) handle(pattern string, f func(*visit, http.ResponseWriter, *http.Request)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		caller := CallerOf(r.Context())
		if caller == nil {
			http.Error(w, "This request was not admitted.", http.StatusUnauthorized)
			return
		}
		v := &visit{Server: s, Caller: caller, Cache: s.Cache.For(caller.Rights), steer: steer.Client{Objects: caller.Objects, Manager: "t9k"}}
		f(v, w, r)
	})
}

// guard returns a context that ends once the caller may no longer have a stream.
func (s *visit) guard(ctx context.Context, logsOf string) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	if s.Standing == nil {
		return ctx, stop
	}
	go func() {
		tick := time.NewTicker(s.Standing.Interval())
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if s.Standing.Check(ctx, logsOf) != nil {
				stop()
			}
		}
	}()
	return ctx, stop
}

// noticeCookie is the name of the cookie that carries a message to the next page.
func (c *Caller) noticeCookie() string { return c.Cookie + "-notice" }

// leaveNotice leaves a message for the next page.
func (c *Caller) leaveNotice(w http.ResponseWriter, text string) {
	c.setNotice(w, url.QueryEscape(text[:min(len(text), 2000)]), 60)
}

func (c *Caller) setNotice(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: c.noticeCookie(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: c.Secure, SameSite: http.SameSiteStrictMode})
}

// notice returns the message that was left for this page; empty if there is none.
func (c *Caller) notice(w http.ResponseWriter, r *http.Request) string {
	cookie, err := r.Cookie(c.noticeCookie())
	if err != nil {
		return ""
	}
	c.setNotice(w, "", -1)
	text, err := url.QueryUnescape(cookie.Value)
	if err != nil {
		return ""
	}
	return text
}
