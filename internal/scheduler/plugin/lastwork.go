package plugin

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// lastWork does the last work that was put in for each key: some keys at a time, and of one key never two at a time, for the older
// one could take effect last.
type lastWork struct {
	mu    sync.Mutex
	todo  map[string]func(context.Context) error
	order workqueue.TypedDelayingInterface[string]
	// retry is after how long work that failed is done again, unless there is newer; 0: never.
	retry time.Duration
}

// errAgain is returned by work that is to be done again, though nothing is wrong.
var errAgain = errors.New("again")

func newLastWork(retry time.Duration) *lastWork {
	return &lastWork{todo: map[string]func(context.Context) error{}, order: workqueue.NewTypedDelayingQueue[string](), retry: retry}
}

// put never waits, so that it can be called with locks held that the work needs.
func (l *lastWork) put(key string, do func(context.Context) error) {
	l.mu.Lock()
	l.todo[key] = do
	l.mu.Unlock()
	l.order.Add(key)
}

func (l *lastWork) run(ctx context.Context, workers int) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	l.order.ShutDown()
	group.Wait()
}

// next does the work of one key; it returns false at the end.
func (l *lastWork) next(ctx context.Context) bool {
	key, over := l.order.Get()
	if over || ctx.Err() != nil {
		return false
	}
	defer l.order.Done(key)
	l.mu.Lock()
	do := l.todo[key]
	delete(l.todo, key)
	l.mu.Unlock()
	if do == nil { // newer work was done while this waited to be done again
		return true
	}
	err := do(ctx)
	if err == nil || ctx.Err() != nil {
		return true
	}
	if !errors.Is(err, errAgain) {
		klog.FromContext(ctx).Error(err, "Writing to the API server")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.todo[key] == nil && l.retry > 0 {
		l.todo[key] = do
		l.order.AddAfter(key, l.retry)
	}
	return true
}
