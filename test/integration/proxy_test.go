package integration

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// proxy stands between an operator and the API server. It writes the operator's requests down, and can lose one.
type proxy struct {
	// kubeconfig leads through the proxy.
	kubeconfig string

	transport http.RoundTripper

	mu       sync.Mutex
	requests []request
	fate     func(r *http.Request) fate
}

// request is what an operator asked for.
type request struct {
	at time.Time
	// method and path of the request, code of the answer: 0 where there was none.
	method, path string
	code         int
}

// fate says what becomes of a request. The zero value lets it pass.
type fate struct {
	// lost keeps the request from the API server, unanswered keeps the answer from the operator.
	lost, unanswered bool
	// then is called when that has happened.
	then func()
}

var errLost = errors.New("lost by the test")

// startProxy runs a proxy for the time of the test.
func startProxy(t *testing.T, config *rest.Config) *proxy {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{transport: transport}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     p,
		FlushInterval: -1, // a watch is to be seen as it comes
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		server.CloseClientConnections() // watches would hold Close up
		server.Close()
	})
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(p.kubeconfig, &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.AuthInfo{}); err != nil {
		t.Fatal(err)
	}
	return p
}

func writeKubeconfig(path string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["test"], c.AuthInfos["test"] = cluster, user
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	data, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// RoundTrip passes a request on, unless it meets another fate.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	var f fate
	if p.fate != nil {
		f = p.fate(r)
	}
	p.requests = append(p.requests, request{at: time.Now(), method: r.Method, path: r.URL.Path})
	this := len(p.requests) - 1
	p.mu.Unlock()
	if f.lost {
		f.then()
		return nil, errLost
	}
	answer, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.requests[this].code = answer.StatusCode
	p.mu.Unlock()
	if f.unanswered {
		answer.Body.Close()
		f.then()
		return nil, errLost
	}
	return answer, nil
}

// decide sets what becomes of the requests from now on. The function is called for one request at a time.
func (p *proxy) decide(f func(r *http.Request) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate = f
}

// seen lists the requests so far whose method and path suit: the path ends with the suffix.
func (p *proxy) seen(method, suffix string) []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []request
	for _, r := range p.requests {
		if r.method == method && strings.HasSuffix(r.path, suffix) {
			some = append(some, r)
		}
	}
	return some
}

// isWrite tells whether a request changes something that counts. Events do not.
func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "/events/")
}
