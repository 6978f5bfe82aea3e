package kit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestDownloadFollowsOnlyTrustedRedirects verifies that a download follows a redirect on this machine, but neither a
// redirect without TLS to another machine nor endless redirects.
func TestDownloadFollowsOnlyTrustedRedirects(t *testing.T) {
	var rounds atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/near":
			http.Redirect(w, r, "/manifest", http.StatusFound)
		case "/far":
			http.Redirect(w, r, "http://example.invalid/manifest", http.StatusFound)
		case "/round":
			rounds.Add(1)
			http.Redirect(w, r, "/round", http.StatusFound)
		default:
			_, _ = io.WriteString(w, "kind: GenericJob\n")
		}
	}))
	t.Cleanup(server.Close)
	body, name, err := download(server.URL + "/near")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != "kind: GenericJob\n" || name != server.URL+"/near" {
		t.Errorf("%q from %s: %v", text, name, err)
	}
	for path, want := range map[string]string{"/far": "only https can be trusted", "/round": "more than 10 times"} {
		if _, _, err := download(server.URL + path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", path, err, want)
		}
	}
	if n := rounds.Load(); n != 1+maxRedirects {
		t.Errorf("%d requests, want the first one and %d redirects", n, maxRedirects)
	}
}
