package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"tensorstack.dev/batch/internal/console/live"
	"tensorstack.dev/batch/internal/console/page"
	"tensorstack.dev/batch/internal/console/ticket"
	"tensorstack.dev/batch/internal/console/view"
)

// host is the address of the tests' server.
const host = "127.0.0.1:8080"

// forbidden returns a server for a user who may not list anything.
func forbidden(t *testing.T) *Server {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	}))
	t.Cleanup(api.Close)
	ctx, stop := context.WithCancel(t.Context())
	cache, err := live.Start(ctx, &rest.Config{Host: api.URL}, "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		cache.Wait()
	})
	<-cache.Settled()
	return New(Options{Cache: cache, Admission: &Local{Gate: NewGate("8080", "127.0.0.1")}})
}

// call sends a request to the console. header holds pairs of names and values.
func call(s *Server, method, path string, cookies []*http.Cookie, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

// token returns the token that opens the console.
func token(s *Server) string { return s.Admission.(*Local).Token() }

// enter opens the console with its token and returns the browser's cookies.
func enter(t *testing.T, s *Server) []*http.Cookie {
	t.Helper()
	answer := call(s, http.MethodGet, "/?token="+url.QueryEscape(token(s)), nil)
	if answer.StatusCode != http.StatusSeeOther || len(answer.Cookies()) != 1 {
		t.Fatalf("the token: %s, cookies %v", answer.Status, answer.Cookies())
	}
	return answer.Cookies()
}

func TestTokenWorksOnceAndBecomesACookie(t *testing.T) {
	s := forbidden(t)
	token := token(s)
	if answer := call(s, http.MethodGet, "/?token=guess", nil); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("a guess: %s", answer.Status)
	}
	c := enter(t, s)[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value == token || len(c.Value) < 40 {
		t.Errorf("the cookie is %+v", c)
	}
	if answer := call(s, http.MethodGet, "/?token="+token, nil); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("the token for the second time: %s", answer.Status)
	}
	if answer := call(s, http.MethodGet, "/?token="+token, []*http.Cookie{c}); answer.StatusCode != http.StatusSeeOther {
		t.Errorf("the token for the second time in the same browser: %s", answer.Status)
	}
	if answer := call(s, http.MethodGet, "/?token=", nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the empty token, which a used one becomes: %s", answer.Status)
	}
}

func TestTokensOfAKeyWorkOnceAndSessionsOutliveARestart(t *testing.T) {
	key := ticket.NewKey()
	before := key.Issue(time.Now())
	s := forbidden(t)
	s.Admission = &Local{Gate: NewKeyGate(key, "t9k local status", "8080", "127.0.0.1")}
	first, second := key.Issue(time.Now()), key.Issue(time.Now())
	answer := call(s, http.MethodGet, "/?token="+first, nil)
	if answer.StatusCode != http.StatusSeeOther || len(answer.Cookies()) != 1 {
		t.Fatalf("the first token: %s", answer.Status)
	}
	cookies := answer.Cookies()
	for name, c := range map[string]struct {
		token string
		want  int
	}{"again": {first, 401}, "the second": {second, 303}, "one from before the start": {before, 401}, "one of another key": {ticket.NewKey().Issue(time.Now()), 401}} {
		if answer := call(s, http.MethodGet, "/?token="+c.token, nil); answer.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, answer.Status, c.want)
		}
	}
	s.Admission = &Local{Gate: NewKeyGate(key, "t9k local status", "8080", "127.0.0.1")}
	if answer := call(s, http.MethodGet, "/", cookies); answer.StatusCode != http.StatusOK {
		t.Errorf("the cookie after a restart: %s", answer.Status)
	}
	s.Admission = &Local{Gate: NewKeyGate(ticket.NewKey(), "t9k local status", "8080", "127.0.0.1")}
	if answer := call(s, http.MethodGet, "/", cookies); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie with another key: %s", answer.Status)
	}
}

func TestTokensThatNobodyHasUsedExpire(t *testing.T) {
	key := ticket.NewKey()
	for name, c := range map[string]struct {
		gate  *Gate
		token func(*Gate) string
	}{
		"of one gate": {NewGate("8080", "127.0.0.1"), (*Gate).Token},
		"of a key":    {NewKeyGate(key, "t9k local status", "8080", "127.0.0.1"), func(*Gate) string { return key.Issue(time.Now()) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := forbidden(t)
			s.Admission = &Local{Gate: c.gate}
			token := c.token(c.gate)
			for _, step := range []struct {
				name string
				age  time.Duration
				want int
			}{{"too old", TokenLifetime + time.Minute, http.StatusUnauthorized}, {"old enough still", TokenLifetime - time.Minute, http.StatusSeeOther}} {
				c.gate.now = func() time.Time { return time.Now().Add(step.age) }
				if answer := call(s, http.MethodGet, "/?token="+token, nil); answer.StatusCode != step.want {
					t.Errorf("%s: %s, want %d", step.name, answer.Status, step.want)
				}
			}
			c.gate.now = time.Now
			if answer := call(s, http.MethodGet, "/?token="+token, nil); answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("used before: %s", answer.Status)
			}
		})
	}
}

func TestOnlyTheBrowserOfTheUserGetsIn(t *testing.T) {
	s := forbidden(t)
	cookies := enter(t, s)
	for _, c := range []struct {
		name, method, path string
		cookies            []*http.Cookie
		header             []string
		want               int
	}{
		{"with the cookie", http.MethodGet, "/", cookies, nil, 200},
		{"under the name localhost", http.MethodGet, "/", cookies, []string{"Host", "localhost:8080"}, 307},
		{"an action under the name localhost", http.MethodPost, "/act", cookies, []string{"Host", "localhost:8080", "Origin", "http://localhost:8080"}, 403},
		{"by the page of a TensorBoard", http.MethodGet, "/", cookies, []string{"Origin", "http://localhost:9999"}, 403},
		{"without a cookie", http.MethodGet, "/", nil, nil, 401},
		{"a file without a cookie", http.MethodGet, "/static/app.js", nil, nil, 401},
		{"with another cookie", http.MethodGet, "/", []*http.Cookie{{Name: cookies[0].Name, Value: "guess"}}, nil, 401},
		{"under a name that was rebound", http.MethodGet, "/", cookies, []string{"Host", "evil.example:8080"}, 403},
		{"under another port", http.MethodGet, "/", cookies, []string{"Host", "127.0.0.1:80"}, 403},
		{"by a script of another page", http.MethodGet, "/", cookies, []string{"Origin", "http://evil.example"}, 403},
		{"by another page without Origin", http.MethodGet, "/", cookies, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"by another server of this machine", http.MethodGet, "/", cookies, []string{"Origin", "http://127.0.0.1:9999"}, 403},
		{"an action from the page", http.MethodPost, "/act", cookies, []string{"Origin", "http://" + host}, 404},
		{"an action of an unknown page", http.MethodPost, "/act", cookies, nil, 403},
		{"an action of another page", http.MethodPost, "/act", cookies, []string{"Origin", "http://evil.example"}, 403},
		{"an action of a page without origin", http.MethodPost, "/act", cookies, []string{"Origin", "null"}, 403},
		{"an action of the same site only", http.MethodPost, "/act", cookies, []string{"Origin", "http://" + host, "Sec-Fetch-Site", "same-site"}, 403},
		{"an action by a link", http.MethodGet, "/jobs/ns/genericjob/x/delete", cookies, nil, 404},
		{"a page that there is not", http.MethodGet, "/nowhere", cookies, nil, 404},
		{"a job that there is not", http.MethodGet, "/jobs/ns/genericjob/x", cookies, nil, 404},
		{"a kind that there is not", http.MethodGet, "/jobs/ns/secret/x", cookies, nil, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := call(s, c.method, c.path, c.cookies, c.header...)
			if answer.StatusCode != c.want {
				t.Errorf("%s, want %d", answer.Status, c.want)
			}
			if csp := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self';") || strings.Contains(csp, "unsafe") {
				t.Errorf("its Content-Security-Policy is %q", csp)
			}
			if got := answer.Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options: %q", got)
			}
		})
	}
}

// TestConsoleHasOneHost verifies that the console sets no cookies under the name localhost, under which pages of
// TensorBoards are served. It redirects the browser instead, and the token in the address stays valid.
func TestConsoleHasOneHost(t *testing.T) {
	s := forbidden(t)
	answer := call(s, http.MethodGet, "/?token="+url.QueryEscape(token(s)), nil, "Host", "localhost:8080")
	if to := answer.Header.Get("Location"); to != "http://"+host+"/?token="+token(s) || len(answer.Cookies()) > 0 {
		t.Errorf("under the name localhost: %s, to %s, cookies %v", answer.Status, to, answer.Cookies())
	}
	enter(t, s)
}

func TestPagesSayWhatTheUserMayNotSee(t *testing.T) {
	s := forbidden(t)
	cookies := enter(t, s)
	for path, want := range map[string]string{"/": "You may not list GenericJobs", "/queues": "You may not list queues", "/nodes": "You may not list nodes"} {
		answer := call(s, http.MethodGet, path, cookies)
		var b strings.Builder
		if err := answer.Write(&b); err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s without %q", path, answer.Status, want)
		}
	}
}

func TestCloseEndsStreams(t *testing.T) {
	s := forbidden(t)
	cookies := enter(t, s)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = host
		s.ServeHTTP(w, r)
	}))
	defer web.Close()
	stream := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/queues", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		r.AddCookie(cookies[0])
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	answer := stream()
	begin := make([]byte, len("event: patch"))
	if _, err := io.ReadFull(answer.Body, begin); err != nil || string(begin) != "event: patch" {
		t.Fatalf("the stream begins with %q, %v", begin, err)
	}
	s.Close()
	for range 2 { // one stream that was open, and one that is opened too late
		if _, err := io.ReadAll(answer.Body); err != nil {
			t.Errorf("the stream ended with %v", err)
		}
		answer = stream()
	}
}

// TestUsersWhoMaySeeTheSameShareARendering verifies that feeds of one address and scope are rendered once per version,
// and that a rendering during which the rights of its user changed is not shared.
func TestUsersWhoMaySeeTheSameShareARendering(t *testing.T) {
	s := forbidden(t)
	made := 0
	user := func(scopes ...string) (*visit, *feed) {
		asked := 0
		v := &visit{Server: s, Caller: &Caller{}, Cache: s.Cache.For(nil)}
		return v, &feed{address: "/nodes", content: content{template: "nodes", topics: live.TopicsNodes,
			make: func(time.Time) any {
				made++
				p := view.Nodes(v.Cache.Nodes(), "", "")
				return &p
			},
			scope: func() string {
				asked++
				return scopes[min(asked, len(scopes))-1]
			}}}
	}
	for _, step := range []struct {
		name   string
		scopes []string
		want   int
	}{
		{"the first", []string{"all"}, 1}, {"one with the same rights", []string{"all"}, 1}, {"one with other rights", []string{"some"}, 2},
		{"one whose rights change", []string{"none", "all"}, 3}, {"one who has the rights that the other had", []string{"none"}, 4}, {"one with the same rights again", []string{"all"}, 4},
	} {
		v, f := user(step.scopes...)
		if r := v.rendered(f); made != step.want || len(r.sections) == 0 {
			t.Errorf("%s: %d renderings, want %d; %d sections", step.name, made, step.want, len(r.sections))
		}
	}
	now := time.Now()
	first := s.renderings.current("key", 1, now)
	if again := s.renderings.current("key", 1, now.Add(refreshInterval/2)); again != first {
		t.Error("a rendering of the same version is not shared")
	}
	if again := s.renderings.current("key", 2, now); again == first {
		t.Error("a rendering of an old version is shared")
	}
	if s.renderings.current("other", 1, now.Add(2*refreshInterval)); len(s.renderings.newest) != 1 {
		t.Errorf("%d renderings are kept, want the one that is in use", len(s.renderings.newest))
	}
}

func TestOnlyWhatDiffersIsSent(t *testing.T) {
	row := func(id, html string) page.Section { return page.Section{ID: id, HTML: html} }
	table := func(rows ...page.Section) page.Section {
		s := page.Section{ID: "rows", Rows: rows}
		for _, r := range rows {
			s.HTML += r.HTML
		}
		return s
	}
	before := []page.Section{row("head", "1"), table(row("a", "a1"), row("b", "b1"))}
	for name, c := range map[string]struct {
		now  []page.Section
		want string
	}{
		"nothing":         {before, `[]`},
		"a section":       {[]page.Section{row("head", "2"), before[1]}, `[["head","2"]]`},
		"a row":           {[]page.Section{before[0], table(row("a", "a1"), row("b", "b2"))}, `[["b","b2"]]`},
		"the order":       {[]page.Section{before[0], table(row("b", "b1"), row("a", "a1"))}, `[["rows","b1a1"]]`},
		"a row more":      {[]page.Section{before[0], table(row("a", "a1"), row("b", "b1"), row("c", "c1"))}, `[["rows","a1b1c1"]]`},
		"all rows gone":   {[]page.Section{before[0], table()}, `[["rows",""]]`},
		"another section": {[]page.Section{row("main", "gone")}, `[["main","gone"]]`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(encode(differing(before, c.now))); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
