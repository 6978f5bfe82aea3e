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

// reign remembers from which resourceVersion on nobody but this process writes the statuses of a kind of job. Its cache may
// have begun long before, when another process led, and may lag; a version later than that has all that the other wrote.
type reign struct {
	mu    sync.Mutex
	since string
}

// begin reads the API server's present version at the first pass, when this process leads already.
func (g *reign) begin(ctx context.Context, live client.Reader, kind kinds.Kind) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.since != "" {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batch.GroupVersion.WithKind(kind.Name + "List"))
	if err := live.List(ctx, list, client.Limit(1)); err != nil { // of no version: it must be the newest
		return fmt.Errorf("reading the present version of %s: %w", kind.Plural, err)
	}
	g.since = list.ResourceVersion
	return nil
}

// covers tells whether an object was read in a version from this reign.
func (g *reign) covers(obj kinds.Object) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), g.since)
	return err == nil && order > 0 // versions that cannot be compared prove nothing
}
