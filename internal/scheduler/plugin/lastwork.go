package plugin

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// lastWork does the last work that was put in for each key: some keys at a time, and of one key never two at a time, for the older
// one could take effect last.
type lastWork struct {
	mu    sync.Mutex
	todo  map[string]func(context.Context) error
	busy  map[string]bool
	order chan string
	// failed is work that is to be done again unless there is newer.
	failed map[string]func(context.Context) error
	// retry is after how long work that failed is done again, unless there is newer; 0: never.
	retry time.Duration
}

func newLastWork(retry time.Duration) *lastWork {
	return &lastWork{todo: map[string]func(context.Context) error{}, busy: map[string]bool{}, failed: map[string]func(context.Context) error{}, order: make(chan string, 100_000), retry: retry}
}

func (l *lastWork) put(key string, do func(context.Context) error) {
	l.mu.Lock()
	queued := l.todo[key] != nil || l.busy[key]
	l.todo[key] = do
	delete(l.failed, key)
	l.mu.Unlock()
	if !queued {
		l.order <- key
	}
}

func (l *lastWork) run(ctx context.Context, workers int) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case key := <-l.order:
					l.work(ctx, key)
				}
			}
		})
	}
	group.Wait()
}

func (l *lastWork) work(ctx context.Context, key string) {
	l.mu.Lock()
	do := l.todo[key]
	delete(l.todo, key)
	l.busy[key] = true
	l.mu.Unlock()
	err := do(ctx)
	l.mu.Lock()
	delete(l.busy, key)
	newer := l.todo[key] != nil
	if err != nil && !newer && l.retry > 0 {
		l.failed[key] = do
		time.AfterFunc(l.retry, func() { l.again(key) })
	}
	l.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Writing to the API server")
	}
	if newer {
		l.order <- key
	}
}

// again puts work in that failed, unless there has been newer.
func (l *lastWork) again(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if do := l.failed[key]; do != nil { // so nothing of the key is queued or under way
		delete(l.failed, key)
		l.todo[key] = do
		l.order <- key
	}
}
