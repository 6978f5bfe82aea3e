package operator

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"tensorstack.dev/batch/internal/metrics"
)

// writes counts the requests to the API server that are not reads, by resource, verb and result.
var writes = metrics.APIWrites.Counter()

func init() { ctrlmetrics.Registry.MustRegister(writes) }

// countWrites makes the clients that are created from a configuration count their writes.
func countWrites(config *rest.Config) {
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		host = &url.URL{} // the clients report the error
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &writeCounter{next: next, prefix: strings.TrimSuffix(host.Path, "/"), resolver: request.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}}
	})
}

// writeCounter counts in writes the requests that pass through it.
type writeCounter struct {
	next http.RoundTripper
	// prefix is the path in the API server's address, without a trailing slash. It is not empty, for example, if a
	// proxy serves the API server below a path.
	prefix   string
	resolver request.RequestInfoFactory
}

// RoundTrip implements http.RoundTripper.
func (c *writeCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(req)
	if req.Method == http.MethodGet {
		return answer, err
	}
	code := 0
	if err == nil {
		code = answer.StatusCode
	}
	if resource, verb := c.targetOf(req); resource != "" {
		writes.WithLabelValues(resource, verb, writeResult(code)).Inc()
	}
	return answer, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (c *writeCounter) WrappedRoundTripper() http.RoundTripper { return c.next }

// targetOf returns the resource of a request, such as pods or pods/status, and its verb. Both are empty if the request
// concerns no resource.
func (c *writeCounter) targetOf(req *http.Request) (resource, verb string) {
	at := *req.URL
	at.Path = strings.TrimPrefix(at.Path, c.prefix)
	info, err := c.resolver.NewRequestInfo(&http.Request{Method: req.Method, URL: &at})
	if err != nil || !info.IsResourceRequest {
		return "", ""
	}
	resource = info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	return resource, info.Verb
}

// writeResult returns the value of the metric's label result for an HTTP code; 0 means that there was no answer.
func writeResult(code int) string {
	switch {
	case code == 0:
		return "unanswered"
	case code < 400:
		return "ok"
	case code == http.StatusConflict:
		return "conflict"
	case code == http.StatusNotFound:
		return "not_found"
	case code == http.StatusTooManyRequests:
		return "throttled"
	case code < 500:
		return "refused"
	}
	return "failed"
}
