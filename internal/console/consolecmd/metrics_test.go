package consolecmd

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestPagesOfPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/": "jobs", "/jobs/ns/genericjob/a": "job", "/jobs/ns/genericjob/logs": "job", "/jobs/ns/genericjob/a/pause": "job", "/jobs/ns/genericjob/a/logs": "logs",
		"/jobs/ns/genericjob/a/logs/stream": "logs", "/history/usage.csv": "history", "/history": "history", "/api/v1/history/jobs": "api", "/static/app.css": "static",
		"/oidc/callback": "oidc", "/jobsboard": "other", "/admin/x": "other", "": "jobs",
	} {
		if got := pageOf(path); got != want {
			t.Errorf("%s is of the page %s, want %s", path, got, want)
		}
	}
}

// TestRequestsAreMeasured verifies the metrics of requests to a server. Clients of streams count as viewers until they
// disconnect, and not as requests, unless the stream was refused.
func TestRequestsAreMeasured(t *testing.T) {
	m := newMeters()
	server := httptest.NewServer(m.measured(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/queues":
			http.Error(w, "no", http.StatusForbidden)
		case r.URL.Path == "/submit":
		case isStream(r):
			for range 2 {
				fmt.Fprintln(w, "data")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}
			<-r.Context().Done()
		default:
			fmt.Fprint(w, "page")
		}
	})))
	defer server.Close()
	get := func(path, accept string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	read := func(path, accept string) {
		t.Helper()
		answer := get(path, accept)
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Error(err)
		}
	}
	viewers := func(want float64, page string) {
		t.Helper()
		var got float64
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if got = testutil.ToFloat64(m.viewers.WithLabelValues(page)); got == want {
				return
			}
		}
		t.Errorf("%s has %v viewers, want %v", page, got, want)
	}
	const events = "text/event-stream"
	first, second := get("/nodes", events), get("/jobs/ns/genericjob/a/logs/stream", "*/*")
	for _, answer := range []*http.Response{first, second} {
		if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || line != "data\n" {
			t.Errorf("a stream begins with %q, %v", line, err)
		}
	}
	viewers(1, "nodes")
	viewers(1, "logs")
	read("/", "text/html")
	read("/queues", events)
	read("/submit", "text/html")
	first.Body.Close()
	second.Body.Close()
	viewers(0, "nodes")
	viewers(0, "logs")
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var counted []string
	for _, f := range families {
		if f.GetName() != "t9k_console_request_seconds" {
			continue
		}
		for _, one := range f.GetMetric() {
			counted = append(counted, fmt.Sprintf("%s %s %d", one.GetLabel()[1].GetValue(), one.GetLabel()[0].GetValue(), one.GetHistogram().GetSampleCount()))
		}
	}
	slices.Sort(counted)
	if got := strings.Join(counted, "; "); got != "jobs 200 1; queues 403 1; submit 200 1" {
		t.Errorf("counted are %s", got)
	}
}

func TestResultsOfReviews(t *testing.T) {
	for code, want := range map[int]string{0: "unanswered", 201: "ok", 403: "refused", 429: "throttled", 503: "failed"} {
		if got := reviewResult(code); got != want {
			t.Errorf("%d is %s, want %s", code, got, want)
		}
	}
}
