package access

import (
	"context"
	"sync"
	"time"
)

// answers is a cache with an expiry time per entry. Concurrent calls for the same key share one request.
type answers[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*answer[V]
	// swept is when expired answers were last removed.
	swept time.Time
	// clock replaces time.Now in tests; nil otherwise.
	clock func() time.Time
}

func (a *answers[K, V]) now() time.Time {
	if a.clock != nil {
		return a.clock()
	}
	return time.Now()
}

type answer[V any] struct {
	// done is closed when the answer is known.
	done  chan struct{}
	value V
	err   error
	// asked is when the question was asked. until is when the answer expires.
	asked, until time.Time
}

// sweepInterval is the interval at which expired answers are removed.
const sweepInterval = time.Minute

// get returns the cached answer for key. If there is none, it calls ask, which also returns how long its answer may be
// cached. fresh reports whether get may use an unexpired answer that was asked for at a time; nil means always. If ctx
// ends first, get returns the error of ctx, and ask continues for other callers.
func (a *answers[K, V]) get(ctx context.Context, key K, fresh func(asked time.Time) bool, ask func() (V, time.Duration, error)) (V, error) {
	now := a.now()
	a.mu.Lock()
	if now.Sub(a.swept) > sweepInterval {
		a.sweep(now)
	}
	known := a.all[key]
	if known == nil || known.old(now) || fresh != nil && !fresh(known.asked) {
		known = &answer[V]{done: make(chan struct{}), asked: now}
		if a.all == nil {
			a.all = map[K]*answer[V]{}
		}
		a.all[key] = known
		go func() {
			defer close(known.done)
			var keep time.Duration
			known.value, keep, known.err = ask()
			known.until = now.Add(keep)
		}()
	}
	a.mu.Unlock()
	select {
	case <-known.done:
		return known.value, known.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// old reports whether an answer has expired. A pending answer has not expired.
func (a *answer[V]) old(now time.Time) bool {
	select {
	case <-a.done:
		return !now.Before(a.until)
	default:
		return false
	}
}

func (a *answers[K, V]) sweep(now time.Time) {
	for key, known := range a.all {
		if known.old(now) {
			delete(a.all, key)
		}
	}
	a.swept = now
}

// each calls f for all values, at most maxConcurrent of them concurrently, and returns the results in the order of the
// values.
func each[T, R any](values []T, f func(T) R) []R {
	results := make([]R, len(values))
	limit := make(chan struct{}, maxConcurrent)
	var running sync.WaitGroup
	for i := range values {
		limit <- struct{}{}
		running.Go(func() {
			results[i] = f(values[i])
			<-limit
		})
	}
	running.Wait()
	return results
}
