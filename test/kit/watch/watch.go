// Package watch watches lists of objects and continues after outages of the API server. It shows every version of each
// object, except versions that appear while a watch is interrupted: after an interruption, it lists the objects again.
// Start reading at Objects.
package watch

import (
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryDelay is the pause before a lost watch is restarted.
const retryDelay = 50 * time.Millisecond

// Objects calls see with all objects of a list, sorted by name: first with the current objects and then after every
// change, until see returns true or ctx ends. If ctx ends first, Objects returns the last error of the API server, or
// nil if there was none.
func Objects(ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]client.Object) bool, opts ...client.ListOption) error {
	var last error
	for ctx.Err() == nil {
		done, err := once(ctx, c, list.DeepCopyObject().(client.ObjectList), see, opts...)
		if done {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
		}
	}
	return last
}

// once lists and watches until see returns true or the watch ends. It reports whether see returned true.
func once(ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]client.Object) bool, opts ...client.ListOption) (bool, error) {
	if err := c.List(ctx, list, opts...); err != nil {
		return false, err
	}
	all := map[string]client.Object{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		all[o.(client.Object).GetName()] = o.(client.Object)
		return nil
	}); err != nil {
		return false, err
	}
	if see(sorted(all)) {
		return true, nil
	}
	from := &client.ListOptions{}
	from.ApplyOptions(opts)
	options := from.AsListOptions()
	options.ResourceVersion = list.GetResourceVersion()
	w, err := c.Watch(ctx, list, append(slices.Clone(opts), &client.ListOptions{Raw: options})...)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(client.Object)
		if e.Type == apiwatch.Error || !ok {
			return false, apierrors.FromObject(e.Object)
		}
		if e.Type == apiwatch.Deleted {
			delete(all, o.GetName())
		} else {
			all[o.GetName()] = o
		}
		if see(sorted(all)) {
			return true, nil
		}
	}
	return false, nil
}

func sorted(all map[string]client.Object) []client.Object {
	out := make([]client.Object, 0, len(all))
	for _, o := range all {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// Typed converts objects to type T. It panics if an object has another type.
func Typed[T client.Object](objects []client.Object) []T {
	out := make([]T, len(objects))
	for i, o := range objects {
		out[i] = o.(T)
	}
	return out
}

// Named returns an option that selects the object with a name.
func Named(name string) client.ListOption { return client.MatchingFields{"metadata.name": name} }
