// Package helper contains the programs that run beside TensorBoard in its pod: a proxy that records requests, and a
// step that downloads files before TensorBoard starts. They do not call the API server. Start reading at
// NewProxyCommand and NewFetchCommand.
package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/tensorboard/board"
)

// headerTimeout is the longest time that a client may take to send the header of a request.
const headerTimeout = 30 * time.Second

// stopTimeout is the longest time for which the proxy waits for requests in progress when it stops.
const stopTimeout = 3 * time.Second

// traffic records when requests start and end.
type traffic struct {
	now func() time.Time

	mu       sync.Mutex
	requests int64
	// open is the number of requests in progress. last is when the last request ended or, before that, the start.
	open int
	last time.Time
}

// newTraffic returns a traffic without requests. now is its clock.
func newTraffic(now func() time.Time) *traffic { return &traffic{now: now, last: now()} }

// watch returns a handler that records requests and passes them to h. A request whose response is a stream lasts as
// long as the stream.
func (t *traffic) watch(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		t.requests++
		t.open++
		t.mu.Unlock()
		defer func() {
			t.mu.Lock()
			t.open--
			t.last = t.now()
			t.mu.Unlock()
		}()
		h.ServeHTTP(w, r)
	})
}

// activity returns the number of requests, and the time for which no request has been in progress.
func (t *traffic) activity() board.Activity {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := board.Activity{Requests: t.requests}
	if t.open == 0 {
		a.QuietSeconds = t.now().Sub(t.last).Seconds()
	}
	return a
}

// ServeHTTP answers with the Activity as JSON.
func (t *traffic) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(t.activity()) // fails only if the client has disconnected
}

// forward returns a handler that forwards requests to TensorBoard.
func forward(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		// Each request has its own connection. On a reused connection, a server that writes the header and the body
		// separately waits 40 ms for the acknowledgement of the header.
		Transport:     &http.Transport{DisableKeepAlives: true},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "TensorBoard does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
}

// NewProxyCommand returns the command that runs the proxy until its context ends or a server fails.
func NewProxyCommand() *cobra.Command {
	var listen, activity, to string
	cmd := &cobra.Command{
		Use:    board.ProxyCommand,
		Short:  "Pass requests on to TensorBoard and report the time since the last one; runs in the pods of TensorBoards",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := url.Parse(to)
			if err != nil {
				return fmt.Errorf("reading --to: %w", err)
			}
			t := newTraffic(time.Now)
			return serve(cmd.Context(), map[string]http.Handler{listen: t.watch(forward(target)), activity: t})
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", ":6006", "address on which the proxy receives requests")
	f.StringVar(&activity, "activity", ":6008", "address that reports the time since the last request")
	f.StringVar(&to, "to", "http://127.0.0.1:6007", "address of TensorBoard")
	return cmd
}

// serve runs a server for each address until ctx ends or a server fails.
func serve(ctx context.Context, handlers map[string]http.Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for address, h := range handlers {
		s := &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: headerTimeout}
		wg.Go(func() {
			if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serving at %s: %w", address, err))
			}
		})
		wg.Go(func() {
			<-ctx.Done()
			stopping, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer done()
			_ = s.Shutdown(stopping) // remaining requests are aborted when the program exits
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
