package forward

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/origin"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// Host is the host name in the local addresses of TensorBoards. Their pages come from pods that other users may
// control. A browser sends the cookies of a host to all ports of the host, so none of our programs serves pages with
// cookies under this name: the console uses 127.0.0.1.
const Host = "localhost"

// Forward serves a TensorBoard at a local address until Close is called.
type Forward struct {
	// URL is the local address.
	URL string

	tunnel  *tunnel
	proxy   *httputil.ReverseProxy
	web     *http.Server
	serving sync.WaitGroup

	mu sync.Mutex
	// open is the number of requests in progress, and last is when a request last began or ended.
	open int
	last time.Time
}

// Start serves a TensorBoard at a local port; port 0 selects a free one. It returns an error if the user cannot reach
// the TensorBoard now. The caller must close the Forward.
func (c *Client) Start(ctx context.Context, tb *tensorboard.TensorBoard, port int) (*Forward, error) {
	f := &Forward{tunnel: &tunnel{client: c, namespace: tb.Namespace, name: tb.Name}, last: time.Now()}
	if _, _, err := f.tunnel.connect(ctx); err != nil {
		return nil, err
	}
	listeners, port, err := listen(ctx, port)
	if err != nil {
		f.tunnel.close()
		return nil, fmt.Errorf("forwarding a port: %w", err)
	}
	f.URL = fmt.Sprintf("http://%s:%d%s/", Host, port, board.Prefix(tb))
	f.proxy = f.tunnel.proxy()
	f.web = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	for _, l := range listeners {
		f.serving.Go(func() { _ = f.web.Serve(l) }) // until Close
	}
	return f, nil
}

// listen listens on one port of both loopback addresses, 127.0.0.1 and ::1, so that no other program can answer at this
// port of localhost. It returns the port.
func listen(ctx context.Context, port int) ([]net.Listener, int, error) {
	var config net.ListenConfig
	for tries := 0; ; tries++ {
		first, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, 0, err
		}
		chosen := first.Addr().(*net.TCPAddr).Port
		second, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(chosen)))
		if err == nil {
			return []net.Listener{first, second}, chosen, nil
		}
		probe, probeErr := config.Listen(ctx, "tcp6", "[::1]:0")
		if probeErr != nil {
			return []net.Listener{first}, chosen, nil // the machine has no IPv6 loopback address
		}
		_ = probe.Close() // so the port is in use
		_ = first.Close()
		if port != 0 || tries == 10 {
			return nil, 0, err
		}
	}
}

// Close stops the server and closes the connections to the TensorBoard. It waits until the server has stopped.
func (f *Forward) Close() {
	_ = f.web.Close() // the error only reports that a listener was already closed
	f.serving.Wait()
	f.tunnel.close()
}

// Quiet returns the time since the end of the last request or, if there was none, since the start; zero during a
// request.
func (f *Forward) Quiet() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open > 0 {
		return 0
	}
	return time.Since(f.last)
}

// ServeHTTP forwards requests that come from the TensorBoard's own pages or directly from the user. It redirects
// requests for a loopback address to Host and refuses all other host names. It also refuses service workers, because
// the worker of a page would remain in the browser and serve the next TensorBoard at this port.
func (f *Forward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, port, err := net.SplitHostPort(r.Host)
	switch {
	case err == nil && name != Host && net.ParseIP(name).IsLoopback():
		http.Redirect(w, r, "http://"+net.JoinHostPort(Host, port)+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	case err != nil || name != Host:
		http.Error(w, "This TensorBoard answers only at "+f.URL+".", http.StatusForbidden)
	case !origin.Same(r, "http://"+r.Host), r.Header.Get("Service-Worker") != "":
		http.Error(w, "This request does not come from a page of this TensorBoard.", http.StatusForbidden)
	default:
		f.count(1)
		defer f.count(-1)
		f.proxy.ServeHTTP(w, r)
	}
}

func (f *Forward) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open += n
	f.last = time.Now()
}

// proxy returns a proxy to the TensorBoard. It forwards cookies in neither direction, because the cookies of this host
// belong to other programs on the machine.
func (t *tunnel) proxy() *httputil.ReverseProxy {
	to := &url.URL{Scheme: "http", Host: Host}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.Out.Header.Del("Cookie")
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Set-Cookie")
			r.Header.Del("Clear-Site-Data")
			return nil
		},
		Transport:     &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx) }, IdleConnTimeout: time.Minute},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "The TensorBoard does not answer: "+strings.TrimSpace(err.Error()), http.StatusBadGateway)
		},
	}
}
