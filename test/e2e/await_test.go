package e2e

import (
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long anything that is waited for may take. It is long, for a machine may be busy, and
// what loses a write asks again only after a while: the controller of PersistentVolumes after 15 s.
const patience = 3 * time.Minute

// retryDelay is the pause before a lost watch is taken up again.
const retryDelay = 50 * time.Millisecond

// follow watches the objects of a list and calls see with all of them, ordered by name, at first and after every change,
// until see is content or ctx ends. It survives an API server that goes away.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]client.Object) bool, opts ...client.ListOption) error {
	var last error
	for ctx.Err() == nil {
		done, err := followOnce(ctx, c, list.DeepCopyObject().(client.ObjectList), see, opts...)
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

func followOnce(ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]client.Object) bool, opts ...client.ListOption) (bool, error) {
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
	if see(ordered(all)) {
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
		if e.Type == watch.Error || !ok {
			return false, apierrors.FromObject(e.Object)
		}
		if e.Type == watch.Deleted {
			delete(all, o.GetName())
		} else {
			all[o.GetName()] = o
		}
		if see(ordered(all)) {
			return true, nil
		}
	}
	return false, nil
}

func ordered(all map[string]client.Object) []client.Object {
	out := make([]client.Object, 0, len(all))
	for _, o := range all {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// typed turns objects into those of one type.
func typed[T client.Object](objects []client.Object) []T {
	out := make([]T, len(objects))
	for i, o := range objects {
		out[i] = o.(T)
	}
	return out
}

// await waits until cond holds of the objects of a list in the space's namespace, and returns them. The test fails, with
// the state of the namespace, when that takes too long.
func await[T client.Object](s *space, what string, list client.ObjectList, cond func([]T) bool, opts ...client.ListOption) []T {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var got []T
	done := false
	err := follow(ctx, s.client, list, func(objects []client.Object) bool {
		got = typed[T](objects)
		done = cond(got)
		return done
	}, append([]client.ListOption{client.InNamespace(s.ns)}, opts...)...)
	if !done {
		s.t.Fatalf("%s has not come about within %s (%v)\n%s", what, patience, err, s.dump())
	}
	return got
}

// named selects the one object of a name.
func named(name string) client.ListOption { return client.MatchingFields{"metadata.name": name} }
