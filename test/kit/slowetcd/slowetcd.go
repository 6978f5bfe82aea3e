// Package slowetcd makes the etcd of a control plane slow, as an overloaded disk does. Start reading at Start.
package slowetcd

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/namespace"
)

// Start puts a relay in front of the control plane's etcd until the test ends. The relay delays each request and each
// answer by delay. Start restarts the API server, which must connect to the relay. The delays begin when the API
// server is ready.
func Start(w *namespace.Test, delay time.Duration) {
	w.Helper()
	socket := filepath.Join(w.Env.Dir, "etcd.sock")
	real := filepath.Join(w.Env.Dir, "etcd-real.sock")
	w.Must(os.Rename(socket, real))
	listener, err := net.Listen("unix", socket)
	w.Must(err)
	r := &relay{target: real, open: map[net.Conn]bool{}}
	r.wg.Go(func() { r.serve(listener) })
	w.Cleanup(func() {
		listener.Close() // removes the socket
		r.stop()
		if err := os.Rename(real, socket); err != nil {
			w.Error(err)
		}
		if err := w.Env.Kill(local.APIServer); err != nil {
			w.Error(err)
		}
		ctx, cancel := context.WithTimeout(w.AfterTest(), await.Patience)
		defer cancel()
		if err := w.Env.AwaitReady(ctx); err != nil { // the following clean-up needs the API server
			w.Error(err)
		}
	})
	w.Must(w.Env.Kill(local.APIServer))
	w.Must(w.Env.AwaitReady(w.Context()))
	r.delay.Store(int64(delay))
}

// relay forwards data between the API server's connections and etcd's socket, target, after a delay.
type relay struct {
	target string
	delay  atomic.Int64 // a time.Duration
	wg     sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func (r *relay) serve(listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // the listener is closed
		}
		to, err := net.Dial("unix", r.target)
		if err != nil || !r.add(from, to) {
			from.Close() // the client retries
			continue
		}
		r.wg.Go(func() { r.pass(from, to) })
		r.wg.Go(func() { r.pass(to, from) })
	}
}

func (r *relay) add(all ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range all {
		r.open[c] = true
		if r.closed {
			c.Close()
		}
	}
	return !r.closed
}

// stop closes all connections and waits until nothing is forwarded.
func (r *relay) stop() {
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

type chunk struct {
	data []byte
	due  time.Time
}

// pass forwards data after the delay. It reads further data during the delay, so that the delays do not add up.
func (r *relay) pass(from, to net.Conn) {
	defer to.Close()
	chunks := make(chan chunk, 10_000)
	go func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				chunks <- chunk{buffer[:n], time.Now().Add(time.Duration(r.delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.data); err != nil {
			from.Close()
			_, _ = io.Copy(io.Discard, from) // returns at once
			for range chunks {               // until the reader has returned
			}
			return
		}
	}
}
