package jobcontroller

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrencyFollowsLatency verifies that fewer requests are sent concurrently if requests take longer, that all
// requests are sent, and that the limit rises again once requests are fast.
func TestConcurrencyFollowsLatency(t *testing.T) {
	p := newConcurrencyLimiter()
	// send sends n concurrent requests and returns the largest number in flight among the last hundred.
	send := func(n int, takes time.Duration) (most int) {
		var (
			mu          sync.Mutex
			wg          sync.WaitGroup
			under, sent int
		)
		for range n {
			wg.Go(func() {
				_ = p.do(0, func() error {
					mu.Lock()
					under++
					if sent++; sent > n-100 {
						most = max(most, under)
					}
					mu.Unlock()
					time.Sleep(takes)
					mu.Lock()
					under--
					mu.Unlock()
					return nil
				})
			})
		}
		wg.Wait()
		if sent != n {
			t.Errorf("%d of %d requests were sent", sent, n)
		}
		return most
	}
	for _, c := range []struct {
		takes time.Duration
		most  int
	}{
		{time.Millisecond, maxInFlight}, {4 * baseLatency, maxInFlight / 4}, {time.Minute, minInFlight}, {baseLatency, maxInFlight},
	} {
		synctest.Test(t, func(t *testing.T) {
			if most := send(1000, c.takes); most < c.most-1 || most > c.most+1 {
				t.Errorf("requests that take %s: %d in flight, want about %d", c.takes, most, c.most)
			}
		})
	}
}

// TestLargePodsAreSentFewAtOnce verifies that the pods in flight fit into maxBytesInFlight, and that a larger pod is
// sent alone.
func TestLargePodsAreSentFewAtOnce(t *testing.T) {
	for _, c := range []struct{ size, most int }{
		{1, maxInFlight}, {maxBytesInFlight / 8, 8}, {maxBytesInFlight/2 + 1, 1}, {2 * maxBytesInFlight, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newConcurrencyLimiter()
			var wg sync.WaitGroup
			var inFlight, most atomic.Int32
			for range 200 {
				wg.Go(func() {
					_ = l.do(c.size, func() error {
						most.Store(max(most.Load(), inFlight.Add(1)))
						time.Sleep(time.Millisecond)
						inFlight.Add(-1)
						return nil
					})
				})
			}
			wg.Wait()
			if int(most.Load()) != c.most {
				t.Errorf("%d pods of %d bytes in flight, want %d", most.Load(), c.size, c.most)
			}
		})
	}
}
