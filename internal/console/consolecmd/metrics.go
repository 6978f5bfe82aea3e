package consolecmd

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"tensorstack.dev/batch/internal/metrics"
	"tensorstack.dev/batch/internal/metrics/guard"
)

// meters are the metrics of a console.
type meters struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	viewers  *prometheus.GaugeVec
	reviews  *prometheus.CounterVec
}

func newMeters() *meters {
	m := &meters{registry: prometheus.NewRegistry(), requests: metrics.ConsoleRequests.Histogram(), viewers: metrics.ConsoleViewers.Gauge(), reviews: metrics.ConsoleReviews.Counter()}
	m.registry.MustRegister(m.requests, m.viewers, m.reviews)
	return m
}

// handler returns the handler of the metrics, which include the metrics of the process and of its clients. It admits
// only callers who may read metrics.
func (m *meters) handler(config *rest.Config) (http.Handler, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the metrics: %w", err)
	}
	filter, err := guard.New(config, client)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{m.registry, ctrlmetrics.Registry}, promhttp.HandlerOpts{}))
	return filter(klog.Background().WithName("metrics"), mux)
}

// selfSigned returns a new certificate for localhost, which clients cannot verify.
func selfSigned() (*tls.Certificate, error) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate that was made: %w", err)
	}
	return &pair, nil
}

// measured returns a handler that measures the responses of another handler.
func (m *meters) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, began, answer := pageOf(r.URL.Path), time.Now(), &answer{ResponseWriter: w}
		if isStream(r) {
			answer.begins = func() { m.viewers.WithLabelValues(page).Inc() }
		}
		defer func() {
			if answer.begins != nil && answer.code == http.StatusOK {
				m.viewers.WithLabelValues(page).Dec()
				return
			}
			code := answer.code
			if code == 0 {
				code = http.StatusOK // net/http sends 200 if the handler has not written anything
			}
			m.requests.WithLabelValues(page, strconv.Itoa(code)).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(answer, r)
	})
}

// isStream reports whether a request asks for a stream. Most streams last until the client disconnects, so their
// durations are not measured.
func isStream(r *http.Request) bool {
	return r.Header.Get("Accept") == "text/event-stream" || strings.HasSuffix(r.URL.Path, "/logs/stream")
}

// pageOf returns the value of the label page for the path of a request.
func pageOf(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "":
		return "jobs"
	case "jobs":
		if parts := strings.Split(rest, "/"); len(parts) > 3 && parts[3] == "logs" {
			return "logs"
		}
		return "job"
	case "queues", "nodes", "submit", "act", "history", "api", "static", "oidc":
		return first
	}
	return "other"
}

// answer records the status code of a response.
type answer struct {
	http.ResponseWriter
	code int
	// begins is called when a response with status 200 begins; nil if there is nothing to do.
	begins func()
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK { // informational responses precede the final one
		if a.code = code; code == http.StatusOK && a.begins != nil {
			a.begins()
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) {
	if a.code == 0 {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(data)
}

// Unwrap gives an http.ResponseController access to the wrapped writer, so that it can flush.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// countReviews returns a copy of config. Clients with the copy count the reviews that they request.
func (m *meters) countReviews(config *rest.Config) *rest.Config {
	counting := rest.CopyConfig(config)
	counting.Wrap(func(next http.RoundTripper) http.RoundTripper { return &reviewCounter{next, m.reviews} })
	return counting
}

// reviewCounter counts the reviews that are sent through it.
type reviewCounter struct {
	next    http.RoundTripper
	reviews *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (c *reviewCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	code := 0
	if err == nil {
		code = answer.StatusCode
	}
	c.reviews.WithLabelValues(path.Base(r.URL.Path), reviewResult(code)).Inc()
	return answer, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (c *reviewCounter) WrappedRoundTripper() http.RoundTripper { return c.next }

// reviewResult returns the result of a review for its HTTP status code; 0 means that there was no response.
func reviewResult(code int) string {
	switch {
	case code == 0:
		return "unanswered"
	case code < 400:
		return "ok"
	case code == http.StatusTooManyRequests:
		return "throttled"
	case code < 500:
		return "refused"
	}
	return "failed"
}
