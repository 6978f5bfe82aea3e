// Package apiproxy provides a proxy between a program and the API server. The proxy records the program's requests,
// can drop requests and answers, can answer instead of the API server, and can close watches. Start reading at Start.
package apiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"tensorstack.dev/batch/test/kit/plane"
)

// Proxy is a proxy between a program and the API server.
type Proxy struct {
	// Kubeconfig is the path of a kubeconfig that contains the address of the proxy.
	Kubeconfig string

	transport http.RoundTripper

	mu       sync.Mutex
	requests []Request
	decide   func(r *http.Request) Fate
	watches  map[*watchBody]bool
}

// Request is a request of the program.
type Request struct {
	// At is the time at which the proxy received the request.
	At time.Time
	// Method and Path are the method and the path of the request.
	Method, Path string
	// Code is the status code of the answer, even if the proxy dropped the answer; 0 if there was none.
	Code int
}

// Fate is what happens to a request. The zero value forwards it.
type Fate struct {
	// Lost drops the request before it reaches the API server. Unanswered drops the answer before it reaches the
	// program.
	Lost, Unanswered bool
	// Code is the HTTP status with which the proxy answers the request instead of the API server; 0 if the proxy does
	// not answer it.
	Code int
	// Then is called when the proxy drops the request or the answer, or before it answers itself. It may be nil.
	// Unlike the function given to Decide, it may call methods of the proxy.
	Then func()
}

var errLost = errors.New("lost on purpose by the test")

// Start runs a proxy until the end of the test. The proxy sends the requests to the API server with the address and
// the credentials in config.
func Start(t testing.TB, config *rest.Config) *Proxy {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{transport: transport, watches: map[*watchBody]bool{}}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     p,
		FlushInterval: -1, // forward watch events without delay
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	ctx, stop := context.WithCancel(context.Background())
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	t.Cleanup(func() {
		stop() // close watches, including those of a program that still runs and reconnects
		server.CloseClientConnections()
		server.Close()
	})
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(p.Kubeconfig, &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.AuthInfo{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// RoundTrip forwards a request, unless the function set by Decide returns another fate.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	var f Fate
	if p.decide != nil {
		f = p.decide(r)
	}
	p.requests = append(p.requests, Request{At: time.Now(), Method: r.Method, Path: r.URL.Path})
	this := len(p.requests) - 1
	p.mu.Unlock()
	if f.Lost {
		f.call()
		return nil, errLost
	}
	if f.Code != 0 {
		f.call()
		return p.refuse(r, this, f.Code), nil
	}
	answer, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.requests[this].Code = answer.StatusCode
	p.mu.Unlock()
	if f.Unanswered {
		answer.Body.Close()
		f.call()
		return nil, errLost
	}
	if IsWatch(r) && answer.StatusCode == http.StatusOK {
		p.track(answer)
	}
	return answer, nil
}

// refuse answers a request like an API server that refuses it.
func (p *Proxy) refuse(r *http.Request, number, code int) *http.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[number].Code = code
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	}
	text, _ := json.Marshal(metav1.Status{ // plain data can always be encoded as JSON
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reasons[code], Message: "refused on purpose by the test"})
	answer := &http.Response{StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(text)),
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text))}
	if code == http.StatusTooManyRequests {
		answer.Header.Set("Retry-After", "1")
	}
	return answer
}

// track registers the answer to a watch, so that BreakWatches can close it.
func (p *Proxy) track(answer *http.Response) {
	body := &watchBody{ReadCloser: answer.Body, p: p}
	answer.Body = body
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches[body] = true
}

// BreakWatches closes all open watches and returns their number.
func (p *Proxy) BreakWatches() int {
	p.mu.Lock()
	var all []*watchBody
	for w := range p.watches {
		all = append(all, w)
	}
	p.mu.Unlock()
	for _, w := range all {
		_ = w.Close() // the reader gets the error
	}
	return len(all)
}

// watchBody is the answer to a watch.
type watchBody struct {
	io.ReadCloser
	p *Proxy
}

// Close closes the watch.
func (w *watchBody) Close() error {
	w.p.mu.Lock()
	delete(w.p.watches, w)
	w.p.mu.Unlock()
	return w.ReadCloser.Close()
}

func (f *Fate) call() {
	if f.Then != nil {
		f.Then()
	}
}

// Decide sets the function that decides the fate of all further requests; nil forwards all requests. f is called for
// one request at a time, and must not call methods of the proxy.
func (p *Proxy) Decide(f func(r *http.Request) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = f
}

// Do calls f while the function given to Decide is not running, so f may change data that this function reads.
func (p *Proxy) Do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Seen returns the requests so far that have the method and whose path ends with the suffix, in order.
func (p *Proxy) Seen(method, suffix string) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []Request
	for _, r := range p.requests {
		if r.Method == method && strings.HasSuffix(r.Path, suffix) {
			some = append(some, r)
		}
	}
	return some
}

// IsWatch reports whether a request is a watch.
func IsWatch(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true"
}

// IsWrite reports whether a request is neither a GET request nor about events.
func IsWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "/events/")
}
