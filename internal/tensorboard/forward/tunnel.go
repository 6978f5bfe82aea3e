package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// tunnel connects to the port of a TensorBoard through the API server. All its connections are streams of one
// connection to a pod. If the connection to the pod is lost, or the pod has ended, the next dial connects to the
// TensorBoard's current pod.
type tunnel struct {
	client          *Client
	namespace, name string

	mu sync.Mutex
	// connection is the connection to pod; nil if there is none. requests is the number of calls of connect, which
	// number the streams.
	connection httpstream.Connection
	pod        tensorboard.PodReference
	requests   int
	closed     bool
	reading    sync.WaitGroup
}

// dial returns a new connection to the TensorBoard, which is a stream of the tunnel's connection to the pod.
func (t *tunnel) dial(ctx context.Context) (net.Conn, error) {
	pod, request, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(board.Port()))
	header.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(request))
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	errs, err := pod.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("connecting to tensorboard/%s: %w", t.name, err)
	}
	_ = errs.Close() // closes only the direction to the node, to which nothing is written
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := pod.CreateStream(header)
	if err != nil {
		pod.RemoveStreams(errs)
		return nil, fmt.Errorf("connecting to tensorboard/%s: %w", t.name, err)
	}
	s := &stream{Stream: data, errs: errs, pod: pod, failure: make(chan error, 1)}
	read := func() {
		if s.readErrors() {
			t.leave(pod)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = s.Close()
		return nil, net.ErrClosed
	}
	t.reading.Go(read)
	return s, nil
}

// connect returns the connection to the pod. If there is none, it opens a connection to the current pod. It also
// returns a new number for the streams of one request.
func (t *tunnel) connect(ctx context.Context) (httpstream.Connection, int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, 0, net.ErrClosed
	}
	t.requests++
	if t.connection != nil {
		select {
		case <-t.connection.CloseChan():
		default:
			return t.connection, t.requests, nil
		}
	}
	to, err := t.client.podOf(ctx, t.namespace, t.name)
	if err != nil {
		return nil, 0, err
	}
	dialer, err := t.client.dialer(t.namespace, to.Name)
	if err != nil {
		return nil, 0, err
	}
	pod, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, 0, fmt.Errorf("forwarding a port to pod %s: %w", to.Name, err)
	}
	t.connection, t.pod = pod, to
	return pod, t.requests, nil
}

// leave closes a connection to a pod, unless another connection has replaced it.
func (t *tunnel) leave(pod httpstream.Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.connection == pod {
		t.connection = nil
		_ = pod.Close() // the error only reports that the connection was already lost
	}
}

// prefer closes the connection unless it leads to present, the current pod of the TensorBoard.
func (t *tunnel) prefer(present tensorboard.PodReference) {
	t.mu.Lock()
	pod := t.connection
	other := t.pod != present
	t.mu.Unlock()
	if pod != nil && other {
		t.leave(pod)
	}
}

// close closes the connection with all its streams, and waits until the goroutines of the streams have ended. connect
// and dial then return net.ErrClosed.
func (t *tunnel) close() {
	t.mu.Lock()
	t.closed = true
	if t.connection != nil {
		_ = t.connection.Close() // the error only reports that the connection was already lost
	}
	t.mu.Unlock()
	t.reading.Wait()
}

// dialer returns a dialer that uses WebSockets, or SPDY if the API server or a proxy does not support WebSockets.
func (c *Client) dialer(namespace, pod string) (httpstream.Dialer, error) {
	u := c.Core.RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	return portforward.NewFallbackDialerForStreaming(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// stream is a connection to a TensorBoard. It implements net.Conn, but ignores deadlines.
type stream struct {
	httpstream.Stream
	errs httpstream.Stream
	pod  httpstream.Connection
	// failure receives one value: the reason why the stream failed, or nil if it did not fail.
	failure chan error
}

// readErrors waits until the stream errs ends, and reports whether the node has sent an error on it.
func (s *stream) readErrors() bool {
	text, err := io.ReadAll(s.errs)
	if len(text) > 0 {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	s.failure <- err
	if len(text) > 0 {
		_ = s.Reset() // a reader would otherwise wait forever
	}
	return len(text) > 0
}

// Read implements net.Conn. At the end of the stream, it returns the reason for a failure if the node has sent one.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	if err != nil {
		select {
		case failure := <-s.failure:
			s.failure <- nil
			if failure != nil {
				return n, failure
			}
		case <-s.pod.CloseChan():
		}
	}
	return n, err
}

// Close implements net.Conn. It closes the stream in both directions.
func (s *stream) Close() error {
	s.pod.RemoveStreams(s.Stream, s.errs)
	_ = s.errs.Reset()
	return s.Reset()
}

// LocalAddr implements net.Conn.
func (s *stream) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (s *stream) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements net.Conn.
func (s *stream) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (s *stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
