// Package latest provides a workqueue that does work for keys with the latest value of each key. Packages writer and
// rights use it for requests to the API server.
package latest

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// retryWrite and maxRetry bound the delay before failed work is done again.
const (
	retryWrite = time.Second
	maxRetry   = 5 * time.Second
)

// ErrAgain makes a queue with retries do the work again without logging an error.
var ErrAgain = errors.New("again")

// Queue is a workqueue of keys with the latest value of each. Work for one key runs one at a time and uses the latest
// value, so an older value never overwrites a newer one.
type Queue[K comparable, V any] struct {
	queue workqueue.TypedRateLimitingInterface[K]
	do    func(context.Context, K, V) error
	// retries is true if failed work is done again, unless there is a newer value.
	retries bool

	mu sync.Mutex
	// values holds, by key, the values for which the work has not begun.
	values map[K]V
}

// New returns a queue that does its work with do and logs the errors of do. If retries is set, failed work is done
// again, unless there is a newer value.
func New[K comparable, V any](retries bool, do func(context.Context, K, V) error) *Queue[K, V] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryWrite, maxRetry)
	return &Queue[K, V]{queue: workqueue.NewTypedRateLimitingQueue(limiter), do: do, retries: retries, values: map[K]V{}}
}

// Put sets the value for a key, in place of a value for which the work has not begun. It never blocks.
func (q *Queue[K, V]) Put(key K, value V) {
	q.mu.Lock()
	q.values[key] = value
	q.mu.Unlock()
	q.queue.Add(key)
}

// Drop removes the value of a key. It reports whether there was a value for which the work had not begun.
func (q *Queue[K, V]) Drop(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.values[key]
	delete(q.values, key)
	return ok
}

// Run works with the given number of workers until ctx ends, and waits for them.
func (q *Queue[K, V]) Run(ctx context.Context, workers int) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	q.queue.ShutDown()
	group.Wait()
}

// next does the work for one key. It returns false when the queue is shut down or ctx has ended.
func (q *Queue[K, V]) next(ctx context.Context) bool {
	key, over := q.queue.Get()
	if over || ctx.Err() != nil {
		return false
	}
	defer q.queue.Done(key)
	q.mu.Lock()
	value, ok := q.values[key]
	delete(q.values, key)
	q.mu.Unlock()
	if !ok { // the value was dropped, or an earlier run has used it
		return true
	}
	err := q.do(ctx, key, value)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrAgain) {
		klog.FromContext(ctx).Error(err, "Cannot complete a request to the API server", "key", key)
	}
	if err == nil || !q.retries {
		q.queue.Forget(key)
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, newer := q.values[key]; !newer {
		q.values[key] = value
		q.queue.AddRateLimited(key)
	}
	return true
}
