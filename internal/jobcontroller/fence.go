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

// leaderFence is the resourceVersion from which on nobody but this process writes the statuses of a kind of job. The cache of the
// process may have begun long before, when another process led, and may lag; a later version has all that the other wrote.
type leaderFence struct {
	mu    sync.Mutex
	since string
}

// set reads the API server's present version at the first pass, when this process leads already. Later calls do nothing.
func (f *leaderFence) set(ctx context.Context, live client.Reader, kind kinds.Kind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since != "" {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batch.GroupVersion.WithKind(kind.Name + "List"))
	if err := live.List(ctx, list, client.Limit(1)); err != nil { // of no version: it must be the newest
		return fmt.Errorf("reading the present version of %s: %w", kind.Plural, err)
	}
	f.since = list.ResourceVersion
	return nil
}

// includes tells whether an object was read in a version after the fence.
func (f *leaderFence) includes(obj kinds.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), f.since)
	return err == nil && order > 0 // versions that cannot be compared prove nothing
}
