package jobcontroller

import (
	"sync"
	"time"
)

// The creations and deletions of pods in flight, over all jobs, are at least minInFlight and at most maxInFlight.
const minInFlight, maxInFlight = 4, 64

// maxBytesInFlight bounds the size of the pods in flight. Each takes several times its size while it is built, encoded, sent and
// read back.
const maxBytesInFlight = 8 << 20

// latencySamples is the number of requests after which most of what was measured before is forgotten.
const latencySamples = 16

// concurrencyLimiter bounds the creations and deletions of pods in flight, over all jobs, by their size and by how long the API
// server takes for one. A server that is short of CPU does no more when it is asked for more at once. It does less: it no longer
// empties the buffers of watches in time, ends those of everybody, and serves them all anew.
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

// do sends a request of a size once there is room for it.
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

// wakeNext wakes one of those that wait, who wakes the next.
func (l *concurrencyLimiter) wakeNext() {
	if l.inFlight < l.limit() {
		l.room.Signal()
	}
}

// limit is the number of requests that may be in flight: all while a request takes no longer than baseLatency, and the fewer the
// longer it takes.
func (l *concurrencyLimiter) limit() int {
	return max(minInFlight, int(maxInFlight*baseLatency/max(l.latency, baseLatency)))
}
