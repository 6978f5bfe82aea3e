package jobcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// pageSize is the number of pods that are read from the API server at a time, since they are much larger there than in the cache.
const pageSize = 500

// liveView is what the API server itself said of a job's pods. Until the cache has caught up it corrects what the cache shows, for
// what has been acted on must not be undone by an older view.
type liveView struct {
	// version is the resourceVersion of the view.
	version string
	pods    map[types.UID]*corev1.Pod
	until   time.Time
}

// readLive reads the job's pods from the API server itself.
func (o *observer) readLive(ctx context.Context, job *engine.Job) (*liveView, error) {
	view := &liveView{pods: map[types.UID]*corev1.Pod{}, until: o.clock.Now().Add(cacheLag)}
	for token := ""; ; {
		var page corev1.PodList
		err := o.live.List(ctx, &page, client.InNamespace(job.Namespace), client.MatchingLabels{batch.LabelJobName: job.Name},
			client.Limit(pageSize), client.Continue(token))
		if err != nil {
			return nil, fmt.Errorf("reading the pods of %s/%s from the API server: %w", job.Namespace, job.Name, err)
		}
		for i := range page.Items {
			if owner := metav1.GetControllerOfNoCopy(&page.Items[i]); owner != nil && owner.UID == job.UID {
				view.pods[page.Items[i].UID] = trimPod(&page.Items[i])
			}
		}
		view.version = page.ResourceVersion
		if token = page.Continue; token == "" {
			return view, nil
		}
	}
}

func (v *liveView) list() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(v.pods))
	for _, pod := range v.pods {
		pods = append(pods, pod)
	}
	return pods
}

// correct returns the newest that is known of a pod that the cache shows; nil if the pod has gone since.
func (v *liveView) correct(cached *corev1.Pod) *corev1.Pod {
	live, there := v.pods[cached.UID]
	switch {
	case there && older(cached.ResourceVersion, live.ResourceVersion):
		return live
	case !there && older(cached.ResourceVersion, v.version):
		return nil
	default:
		return cached
	}
}

// older tells whether resourceVersion a comes before b. Versions that cannot be compared prove nothing.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
