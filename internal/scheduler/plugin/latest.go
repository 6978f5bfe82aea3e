package plugin

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// A write to the API server that failed is tried again after retryWrite at first, and after longestRetry at most.
const (
	retryWrite   = time.Second
	longestRetry = 5 * time.Second
)

// errAgain is returned by a write that is to be tried again, though nothing is wrong.
var errAgain = errors.New("again")

// latestQueue is a workqueue of keys with the latest value of each. Work for one key runs one at a time and does the
// value that is the latest then, so an older value never takes effect last.
type latestQueue[K comparable, V any] struct {
	queue workqueue.TypedRateLimitingInterface[K]
	do    func(context.Context, K, V) error
	// retries: work that failed is done again, unless there is a newer value.
	retries bool

	mu     sync.Mutex
	values map[K]V
}

func newLatestQueue[K comparable, V any](retries bool, do func(context.Context, K, V) error) *latestQueue[K, V] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryWrite, longestRetry)
	return &latestQueue[K, V]{queue: workqueue.NewTypedRateLimitingQueue(limiter), do: do, retries: retries, values: map[K]V{}}
}

// put never waits.
func (q *latestQueue[K, V]) put(key K, value V) {
	q.mu.Lock()
	q.values[key] = value
	q.mu.Unlock()
	q.queue.Add(key)
}

// drop withdraws what has been put in for a key, and tells whether there was anything that was not under way.
func (q *latestQueue[K, V]) drop(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.values[key]
	delete(q.values, key)
	return ok
}

// run works until ctx ends, on some keys at a time.
func (q *latestQueue[K, V]) run(ctx context.Context, workers int) {
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

// next does the work of one key; it returns false at the end.
func (q *latestQueue[K, V]) next(ctx context.Context) bool {
	key, over := q.queue.Get()
	if over || ctx.Err() != nil {
		return false
	}
	defer q.queue.Done(key)
	q.mu.Lock()
	value, ok := q.values[key]
	delete(q.values, key)
	q.mu.Unlock()
	if !ok { // withdrawn, or done while this waited to be done again
		return true
	}
	err := q.do(ctx, key, value)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errAgain) {
		klog.FromContext(ctx).Error(err, "Writing to the API server")
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
