package recorder

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// firstLists is the longest time that the pod watch waits for the first lists of jobs, so that the recorder knows the
// end of a job before it finds the job's pods missing.
const firstLists = 10 * time.Second

// watchAll starts the watches of jobs and of events about jobs, then the watch of pods, and after the first list of
// pods the watch of warnings about pods.
func (r *Recorder) watchAll(ctx context.Context) {
	jobs, all := newLatch(len(kinds.All)), newLatch(2*len(kinds.All)+2)
	for i := range kinds.All {
		k := &kinds.All[i]
		listed, counted, noted := jobs.done(), all.done(), all.done()
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": batch.GroupVersion.String(), "kind": k.Name}}
		r.watch(ctx, r.jobs(k), object, &stream[*unstructured.Unstructured]{
			seen: func(o *unstructured.Unstructured, gone bool) { r.job(ctx, k, o, gone) },
			all: func(present []*unstructured.Unstructured) {
				r.jobsAre(ctx, k, uids(present))
				listed()
				counted()
			},
		})
		r.watch(ctx, r.events(k), &corev1.Event{}, &stream[*corev1.Event]{
			seen: func(e *corev1.Event, gone bool) {
				if !gone {
					r.event(ctx, e)
				}
			},
			all: func([]*corev1.Event) { noted() },
		})
	}
	r.running.Go(func() {
		select {
		case <-jobs.open:
		case <-time.After(firstLists):
		case <-ctx.Done():
		}
		counted, warned := all.done(), all.done()
		warnings := sync.OnceFunc(func() {
			r.watch(ctx, r.warnings(), &corev1.Event{}, &stream[*corev1.Event]{
				seen: func(e *corev1.Event, gone bool) {
					if !gone {
						r.warning(ctx, e)
					}
				},
				all: func([]*corev1.Event) { warned() },
			})
		})
		r.watch(ctx, r.pods(), &corev1.Pod{}, &stream[*corev1.Pod]{
			seen: func(p *corev1.Pod, gone bool) { r.pod(ctx, p, gone) },
			all: func(present []*corev1.Pod) {
				r.podsAre(ctx, uids(present))
				counted()
				warnings()
			},
		})
	})
	r.settled = all.open
}

// latch opens when a given number of events have happened.
type latch struct {
	mu   sync.Mutex
	left int
	open chan struct{}
}

func newLatch(n int) *latch { return &latch{left: n, open: make(chan struct{})} }

// done returns a function that counts one event. Further calls of the function have no effect.
func (l *latch) done() func() {
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.left--; l.left == 0 {
			close(l.open)
		}
	})
}

// watch starts to list and watch a resource. The watch runs until ctx ends.
func (r *Recorder) watch(ctx context.Context, lw cache.ListerWatcher, object runtime.Object, s cache.ReflectorStore) {
	reflector := cache.NewReflectorWithOptions(lw, object, s, cache.ReflectorOptions{})
	r.running.Go(func() { reflector.RunWithContext(ctx) })
}

func (r *Recorder) jobs(k *kinds.Kind) *cache.ListWatch {
	c := r.objects.Resource(batch.GroupVersion.WithResource(k.Plural)).Namespace(r.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, o)
		},
	}
}

func (r *Recorder) events(k *kinds.Kind) *cache.ListWatch {
	return cache.NewListWatchFromClient(r.core.CoreV1().RESTClient(), "events", r.Namespace, fields.OneTermEqualSelector("involvedObject.kind", k.Name))
}

func (r *Recorder) warnings() *cache.ListWatch {
	return cache.NewListWatchFromClient(r.core.CoreV1().RESTClient(), "events", r.Namespace,
		fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.kind", "Pod"), fields.OneTermEqualSelector("type", corev1.EventTypeWarning)))
}

func (r *Recorder) pods() *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(r.core.CoreV1().RESTClient(), "pods", r.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = batch.LabelJobName })
}

// stream forwards the objects that a watch delivers and stores nothing. It implements cache.ReflectorStore.
type stream[T any] struct {
	// The stream calls seen with each object of a list and with each new, changed or deleted object; gone is true for a
	// deleted object. It calls all with each complete list, after it has called seen for the objects of the list.
	seen func(o T, gone bool)
	all  func([]T)
}

// Add implements cache.ReflectorStore.
func (s *stream[T]) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *stream[T]) Update(o any) error {
	if t, ok := o.(T); ok {
		s.seen(t, false)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *stream[T]) Delete(o any) error {
	if t, ok := o.(T); ok {
		s.seen(t, true)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *stream[T]) Replace(list []any, _ string) error {
	all := make([]T, 0, len(list))
	for _, o := range list {
		if t, ok := o.(T); ok {
			all = append(all, t)
			s.seen(t, false)
		}
	}
	s.all(all)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *stream[T]) Resync() error { return nil }
