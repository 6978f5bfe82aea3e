package server

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/steer"
)

// Admission decides who makes a request and whether the request is served.
type Admission interface {
	// Admit returns the caller of a request. If it returns nil, it has written the response.
	Admit(w http.ResponseWriter, r *http.Request) *Caller
}

// Reads reports what a caller may get.
type Reads interface {
	// MayGet returns for each of the namespaces, in their order, whether the caller may get a resource, such as
	// pods/log, there.
	MayGet(ctx context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error)
}

// Caller is the user who makes a request, with clients that act with the user's rights.
type Caller struct {
	// Name is the user name that pages show; empty if the console has only one user.
	Name string
	// ID identifies the rights of the caller. Callers with equal IDs may share a stream.
	ID string
	// Rights reports what the caller may list; nil if the caller has the rights of the console itself.
	Rights live.Rights
	// Reads reports what the caller may get, which decides what the caller sees of the archive; nil if the API server
	// is asked with the caller's clients.
	Reads Reads
	// Objects and Core are clients with the caller's rights.
	Objects dynamic.Interface
	Core    corev1client.CoreV1Interface
	// Cookie is the prefix of the names of the console's cookies. Secure is true if the cookies are sent over TLS only.
	Cookie string
	Secure bool
	// SignOut is true if the caller has signed in to the console and can sign out.
	SignOut bool
	// Standing checks during a stream whether the caller is still admitted; nil if this cannot change.
	Standing Standing
}

// Standing reports whether a caller is still admitted and keeps the right to a stream.
type Standing interface {
	// Check returns an error if the caller is no longer admitted, or may no longer read the logs of a namespace. An
	// empty namespace means that the stream has no logs.
	Check(ctx context.Context, logsOf string) error
	// Interval is the interval at which a stream calls Check.
	Interval() time.Duration
}

type callerKey struct{}

// CallerOf returns the caller of an admitted request; nil for any other request.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// visit serves one request: it combines the server with the caller of the request. Its field Cache hides the server's
// Cache, so that pages show only objects that the caller may see.
type visit struct {
	*Server
	*Caller
	Cache *live.View
	steer steer.Client
}

// handle registers a handler of admitted requests.
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

// guard returns a context that is cancelled when the caller may no longer have a stream. logsOf is the namespace of the
// stream's logs; empty if the stream has no logs. The caller of guard must call the CancelFunc.
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

// noticeCookie returns the name of the cookie that carries a message to the next page.
func (c *Caller) noticeCookie() string { return c.Cookie + "-notice" }

// leaveNotice stores a message for the next page in a cookie that lasts one minute. It cuts the message after 2000
// bytes.
func (c *Caller) leaveNotice(w http.ResponseWriter, text string) {
	c.setNotice(w, url.QueryEscape(text[:min(len(text), 2000)]), 60)
}

func (c *Caller) setNotice(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: c.noticeCookie(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: c.Secure, SameSite: http.SameSiteStrictMode})
}

// notice returns the message for this page and deletes its cookie. The message is empty if there is none.
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
