package webhook

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// quiet is the time without a request after which a server that shuts down assumes that all clients have left.
	quiet = 300 * time.Millisecond
	// drainTime is the longest time for which a server that shuts down waits for clients to leave.
	drainTime = 3 * time.Second
)

// draining is a webhook server that asks its clients to close their connections before it shuts down. API servers keep
// their connections, even to a pod that is no longer an endpoint of the Service. At its shutdown, net/http closes idle
// connections without notice. A request that an API server sends at this moment would be lost, and the API server would
// admit the job without the webhook.
type draining struct {
	webhook.Server
	ending atomic.Bool
	// last is the time of the last request, as Unix time in nanoseconds.
	last atomic.Int64
}

// Register implements webhook.Server.
func (d *draining) Register(path string, hook http.Handler) {
	d.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.last.Store(time.Now().UnixNano())
		if d.ending.Load() {
			w.Header().Set("Connection", "close") // with HTTP/2, net/http sends GOAWAY instead
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start implements manager.Runnable. When ctx ends, it drains the server before it stops the server.
func (d *draining) Start(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		d.drain(serving)
		stop()
	})()
	return d.Server.Start(serving)
}

// drain asks clients to close their connections. It returns when no request has come for quiet, after drainTime at the
// latest, or when ctx ends.
func (d *draining) drain(ctx context.Context) {
	d.ending.Store(true)
	began := time.Now()
	tick := time.NewTicker(quiet / 10)
	defer tick.Stop()
	for ctx.Err() == nil && time.Since(began) < drainTime {
		if time.Since(began) >= quiet && time.Since(time.Unix(0, d.last.Load())) >= quiet {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
