package jobcontroller

import (
	"sync"
	"time"
)

// minInFlight and maxInFlight bound the limit of a concurrencyLimiter.
const minInFlight, maxInFlight = 4, 64

// maxBytesInFlight limits the total size in bytes of the pods in flight. A pod takes several times its size while it
// is built, encoded, sent and decoded.
const maxBytesInFlight = 8 << 20

// latencySamples is the time constant, in requests, of the moving average of the latency.
const latencySamples = 16

// concurrencyLimiter limits the concurrent requests that create, delete or stop pods over all jobs, by the size of the
// pods and by the latency of the API server. More concurrent requests make a server that is short of CPU slower: it no
// longer empties the buffers of watches in time, closes the watches of all clients, and must serve them again.
type concurrencyLimiter struct {
	mu       sync.Mutex
	room     sync.Cond
	inFlight int
	bytes    int
	latency  time.Duration // moving average
}

func newConcurrencyLimiter() *concurrencyLimiter {
	l := &concurrencyLimiter{latency: baseLatency}
	l.room.L = &l.mu
	return l
}

// do waits until the limits allow a request for a pod of size bytes, calls send and returns its error. It sends a pod
// larger than maxBytesInFlight alone.
func (l *concurrencyLimiter) do(size int, send func() error) error {
	l.enter(size)
	began := time.Now()
	err := send()
	l.leave(size, time.Since(began))
	return err
}

func (l *concurrencyLimiter) enter(size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.inFlight > 0 && (l.inFlight >= l.limit() || l.bytes+size > maxBytesInFlight) {
		l.room.Wait()
	}
	l.inFlight++
	l.bytes += size
	l.wakeNext()
}

func (l *concurrencyLimiter) leave(size int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency += (took - l.latency) / latencySamples
	l.inFlight--
	l.bytes -= size
	l.wakeNext()
}

// wakeNext wakes one waiting caller if the limit allows another request. If that caller may proceed, it wakes the next
// one.
func (l *concurrencyLimiter) wakeNext() {
	if l.inFlight < l.limit() {
		l.room.Signal()
	}
}

// limit returns the number of requests that may be in flight: maxInFlight while requests take at most baseLatency on
// average, and fewer the longer they take, but at least minInFlight.
func (l *concurrencyLimiter) limit() int {
	return max(minInFlight, int(maxInFlight*baseLatency/max(l.latency, baseLatency)))
}
