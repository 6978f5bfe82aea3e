package operator

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
)

func TestWritesAreCounted(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	defer server.Close()
	config := &rest.Config{Host: server.URL + "/behind/a/proxy"}
	countWrites(config)
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, path           string
		code                   int
		resource, verb, result string
	}{
		{"POST", "/api/v1/namespaces/a/pods", 201, "pods", "create", "ok"},
		{"DELETE", "/api/v1/namespaces/a/pods/b", 404, "pods", "delete", "not_found"},
		{"PUT", "/apis/batch.tensorstack.dev/v1beta1/namespaces/a/genericjobs/b/status", 409, "genericjobs/status", "update", "conflict"},
		{"PATCH", "/apis/scheduler.tensorstack.dev/v1beta1/queues/b/status", 429, "queues/status", "patch", "throttled"},
		{"POST", "/api/v1/namespaces/a/services", 403, "services", "create", "refused"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", 503, "leases", "update", "failed"},
		{"GET", "/api/v1/namespaces/a/pods/b", 200, "", "", ""},
		{"POST", "/version", 200, "", "", ""},
	} {
		code = test.code
		writes.Reset()
		req, err := http.NewRequestWithContext(t.Context(), test.method, config.Host+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		want := 0
		if test.resource != "" {
			want = 1
			if n := testutil.ToFloat64(writes.WithLabelValues(test.resource, test.verb, test.result)); n != 1 {
				t.Errorf("%s %s: it is not counted as %s %s: %s", test.method, test.path, test.verb, test.resource, test.result)
			}
		}
		if n := testutil.CollectAndCount(writes); n != want {
			t.Errorf("%s %s: %d counters, want %d", test.method, test.path, n, want)
		}
	}
	server.Close()
	writes.Reset()
	if _, err := c.Post(config.Host+"/api/v1/namespaces/a/pods", "", nil); err == nil {
		t.Fatal("a closed server answered")
	}
	if n := testutil.ToFloat64(writes.WithLabelValues("pods", "create", "unanswered")); n != 1 {
		t.Error("a write without an answer is not counted")
	}
}
