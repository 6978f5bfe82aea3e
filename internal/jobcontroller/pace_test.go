package jobcontroller

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: the longer requests take the fewer are sent at once, and all are sent. Afterwards, when they take less again, there
// are more at once again.
func TestPace(t *testing.T) {
	p := newPace()
	// play sends n requests from as many callers and returns how many were under way at most among the last hundred.
	play := func(n int, takes time.Duration) (most int) {
		var (
			mu          sync.Mutex
			wg          sync.WaitGroup
			under, sent int
		)
		for range n {
			wg.Go(func() {
				_ = p.do(func() error {
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
		{time.Millisecond, mostAtOnce}, {4 * atEase, mostAtOnce / 4}, {time.Minute, leastAtOnce}, {atEase, mostAtOnce},
	} {
		synctest.Test(t, func(t *testing.T) {
			if most := play(1000, c.takes); most < c.most-1 || most > c.most+1 {
				t.Errorf("requests that take %s: %d at once, want about %d", c.takes, most, c.most)
			}
		})
	}
}
