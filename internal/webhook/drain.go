package webhook

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// quiet is how long no request has come when a server that ends counts as one that clients have left.
	quiet = 300 * time.Millisecond
	// drainTime is the longest time for which a server that ends waits for that.
	drainTime = 3 * time.Second
)

// draining is a webhook server that asks its clients to leave before it ends. An API server keeps its connections, also
// to a pod that is no longer an endpoint of the Service. net/http closes idle connections without a word, and a request
// that is on its way then is lost: its job would be created without the webhook.
type draining struct {
	webhook.Server
	ending atomic.Bool
	// last is when the last request came, in nanoseconds since 1970.
	last atomic.Int64
}

// Register implements webhook.Server.
func (d *draining) Register(path string, hook http.Handler) {
	d.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.last.Store(time.Now().UnixNano())
		if d.ending.Load() {
			w.Header().Set("Connection", "close") // with HTTP/2 it becomes GOAWAY
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start implements manager.Runnable.
func (d *draining) Start(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		d.drain(serving)
		stop()
	})()
	return d.Server.Start(serving)
}

// drain asks clients to leave and returns when they have left, or after drainTime.
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
