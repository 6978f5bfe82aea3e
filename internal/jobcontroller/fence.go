package jobcontroller

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// leaderFence holds the resourceVersion after which only this process writes the statuses of a kind of job. The caches
// may have been filled while another process led, and may be stale. An object with a later version includes everything
// that the other process wrote.
type leaderFence struct {
	mu    sync.Mutex
	since string
}

// set reads the current resourceVersion from the API server in the first pass, when this process already leads. Calls
// after the first success do nothing.
func (f *leaderFence) set(ctx context.Context, live client.Reader, kind kinds.Kind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since != "" {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batch.GroupVersion.WithKind(kind.Name + "List"))
	if err := live.List(ctx, list, client.Limit(1)); err != nil { // a list without a resourceVersion is the newest state
		return fmt.Errorf("reading the present version of %s: %w", kind.Plural, err)
	}
	f.since = list.ResourceVersion
	return nil
}

// includes reports whether the resourceVersion of an object is after the fence.
func (f *leaderFence) includes(obj kinds.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), f.since)
	return err == nil && order > 0 // an error means that the versions cannot be compared
}
