package live

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"tensorstack.dev/batch/internal/console/view"
)

// source is the cache of one resource: its client, its handlers and its store.
type source struct {
	// group and plural identify the resource. what is its name in messages.
	group, plural, what string
	client              rest.Interface
	object              runtime.Object
	// namespaced is true if the resource is namespaced. A user may then have the right to list it in one namespace
	// only.
	namespaced bool
	selector   fields.Selector
	transform  cache.TransformFunc
	handler    cache.ResourceEventHandlerFuncs
	// indexers are the indices of the store.
	indexers cache.Indexers

	mu sync.RWMutex
	// store holds the objects; nil while nothing is watched, for example because the user may not list the resource.
	store cache.Indexer
	// hidden describes what the user may not list; nil if the user may list everything, or before this is known.
	hidden *view.Hidden
}

// retryInterval is the interval between attempts to list a resource that is forbidden or not served.
const retryInterval = 30 * time.Second

// run watches the resource until ctx is done. It lists all namespaces, or only the given namespace if the user may not
// list all of them. run calls settled once the store holds the objects that the user may list, or once it knows that
// the user may list none. It may call settled again later. It calls changed when the rights of the user may have
// changed.
func (s *source) run(ctx context.Context, namespace string, settled, changed func()) {
	defer settled() // a caller may wait for it even if ctx has ended before the first probe
	for ctx.Err() == nil {
		within, permitted := s.review(ctx, namespace, changed)
		if permitted {
			s.watch(ctx, within, settled)
			s.review(ctx, namespace, changed) // the watch has ended, probably because a right was withdrawn
		}
		settled()
		changed()
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// review probes where the user may list the resource, sets hidden accordingly, and calls changed if hidden is different
// now. Its results are those of probe.
func (s *source) review(ctx context.Context, namespace string, changed func()) (within string, permitted bool) {
	within, permitted = s.probe(ctx, namespace)
	var hidden *view.Hidden
	switch {
	case !permitted:
		hidden = &view.Hidden{What: s.what}
	case within != "":
		hidden = &view.Hidden{What: s.what, Within: within}
	}
	s.mu.Lock()
	different := (hidden == nil) != (s.hidden == nil) || hidden != nil && *hidden != *s.hidden
	s.hidden = hidden
	s.mu.Unlock()
	if different {
		changed()
	}
	return within, permitted
}

// probe determines where the user may list the resource. within is the only namespace in which the user may list it;
// empty for all namespaces. An error other than Forbidden and NotFound counts as permitted, because the watch retries.
func (s *source) probe(ctx context.Context, namespace string) (within string, permitted bool) {
	list := func(in string) error {
		r := s.client.Get().Resource(s.plural).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec)
		if s.namespaced && in != "" {
			r = r.Namespace(in)
		}
		return r.Do(ctx).Error()
	}
	err := list("")
	if apierrors.IsForbidden(err) && s.namespaced {
		within = namespace
		err = list(namespace)
	}
	return within, !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

// watch fills the store until ctx is done, or until the API server refuses the resource or no longer serves it. An
// empty namespace means all namespaces. watch calls settled when the store has been filled for the first time. At its
// end, it drops the store and reports all its objects as deleted.
func (s *source) watch(ctx context.Context, namespace string, settled func()) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if s.selector == nil {
		s.selector = fields.Everything()
	}
	lw := cache.NewListWatchFromClient(s.client, s.plural, namespace, s.selector)
	indexers := cache.Indexers{}
	maps.Copy(indexers, s.indexers)
	if s.namespaced {
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	informer := cache.NewSharedIndexInformer(lw, s.object, 0, indexers)
	handler := s.handler
	_ = informer.SetTransform(s.transform)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			stop()
		}
	})
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.store = informer.GetIndexer()
	s.mu.Unlock()
	var synced sync.WaitGroup
	synced.Go(func() {
		// The registration's HasSynced reports that the handler has received every object in the store.
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			settled()
		}
	})
	informer.RunWithContext(ctx)
	synced.Wait()
	s.mu.Lock()
	gone := s.store.List()
	s.store = nil
	s.mu.Unlock()
	for _, o := range gone {
		handler.OnDelete(o)
	}
}

// list returns all objects of the store; nil if there is no store.
func list[T any](s *source) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.store == nil {
		return nil
	}
	return objects[T](s.store.List())
}

// indexed returns the objects of the store that have a value in an index; nil if there is no store.
func indexed[T any](s *source, index, value string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.store == nil {
		return nil
	}
	found, err := s.store.ByIndex(index, value)
	if err != nil {
		return nil
	}
	return objects[T](found)
}

// keyed returns a list that holds the object with a key NAMESPACE/NAME; an empty list if the store has no such object.
func keyed[T any](s *source, key string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.store == nil {
		return nil
	}
	o, found, err := s.store.GetByKey(key)
	if !found || err != nil {
		return nil
	}
	return objects[T]([]any{o})
}

func objects[T any](all []any) []T {
	typed := make([]T, 0, len(all))
	for _, o := range all {
		if t, ok := o.(T); ok {
			typed = append(typed, t)
		}
	}
	return typed
}

// namespaces returns the namespaces of the stored objects; nil for a cluster-scoped resource.
func (s *source) namespaces() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.store == nil || !s.namespaced {
		return nil
	}
	return s.store.ListIndexFuncValues(cache.NamespaceIndex)
}

// isHidden describes what the user may not list of the source; nil if the user may list everything.
func (s *source) isHidden() *view.Hidden {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.hidden
}
