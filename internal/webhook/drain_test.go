package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// replica is one of several webhook servers, each with its own address.
type replica struct {
	address string
	end     context.CancelFunc
	ended   chan error
}

// startReplica starts a server and waits until it serves.
func startReplica(t *testing.T, certificate *tls.Certificate) *replica {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{address: free.Addr().String(), ended: make(chan error, 1)}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	server := &draining{Server: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
	}}})}
	server.Register("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body) // clients detect lost requests
	}))
	ctx, end := context.WithCancel(t.Context())
	r.end = end
	go func() { r.ended <- server.Start(ctx) }()
	if err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return server.StartedChecker()(nil) == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestServersEndWithoutLosingRequests verifies that no request is lost while servers are replaced. The clients behave
// like an API server that calls a Service: they use HTTP/1.1, open connections to the current server, and reuse
// connections.
func TestServersEndWithoutLosingRequests(t *testing.T) {
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	var endpoint atomic.Pointer[replica]
	endpoint.Store(startReplica(t, &certificate))
	trust := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test is about connections
	transport := &http.Transport{TLSClientConfig: trust,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", endpoint.Load().address)
		}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ctx, stop := context.WithCancel(t.Context())
	var sent atomic.Int64
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := echo(client, fmt.Sprint("request ", sent.Add(1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		old, seen := endpoint.Load(), sent.Load()
		endpoint.Store(startReplica(t, &certificate))
		old.end()
		if err := <-old.ended; err != nil {
			t.Error(err)
		}
		if sent.Load() == seen {
			t.Error("nothing was sent while a server was replaced")
		}
	}
	stop()
	clients.Wait()
	endpoint.Load().end()
	if err := <-endpoint.Load().ended; err != nil {
		t.Error(err)
	}
}

// echo sends a text and verifies that the server returns it.
func echo(client *http.Client, text string) error {
	body := strings.NewReader(text)
	answer, err := client.Post("https://webhook/", "text/plain", body) //nolint:noctx // a hang fails the test
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && string(got) != text {
		err = errors.New("the answer to " + text + " is " + string(got))
	}
	return err
}
