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

// pageSize is the number of pods in one page of a list from the API server. Pods are much larger there than in the
// cache.
const pageSize = 500

// liveView is a view of a job's pods that was read from the API server. It corrects the cache until the cache has
// caught up, because an older view must not undo a decision.
type liveView struct {
	// version is the resourceVersion of the view.
	version string
	pods    map[types.UID]*corev1.Pod
	until   time.Time
}

// readLive reads the pods of a job from the API server.
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

// correct returns the newest known state of a cached pod; nil if the pod has gone.
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

// older reports whether resourceVersion a is before b. It is false if they cannot be compared.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
