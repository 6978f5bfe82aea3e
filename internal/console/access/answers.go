package access

import (
	"context"
	"sync"
	"time"
)

// answers keeps answers to questions for as long as each may be kept. Of several who ask the same at once, one asks on
// behalf of all.
type answers[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]*answer[V]
	// swept is when answers that are too old were last removed.
	swept time.Time
}

type answer[V any] struct {
	// done is closed once there is an answer.
	done  chan struct{}
	value V
	err   error
	// until is how long the answer holds.
	until time.Time
}

// sweepInterval is the interval at which old answers are removed.
const sweepInterval = time.Minute

// get returns the answer to a question. ask finds it out, and returns for how long it holds.
func (a *answers[K, V]) get(ctx context.Context, key K, ask func() (V, time.Duration, error)) (V, error) {
	now := time.Now()
	a.mu.Lock()
	if now.Sub(a.swept) > sweepInterval {
		a.sweep(now)
	}
	known := a.all[key]
	if known == nil || known.old(now) {
		known = &answer[V]{done: make(chan struct{})}
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

// old reports whether an answer may no longer be given. One that is still being asked for may.
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

// each calls f for all values, several at once, and returns the results in the order of the values.
func each[T, R any](values []T, f func(T) R) []R {
	results := make([]R, len(values))
	limit := make(chan struct{}, atOnce)
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
