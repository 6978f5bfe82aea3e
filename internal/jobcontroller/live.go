package jobcontroller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// pageSize is the number of pods in one page of a list from the API server. Pods from the API server are much larger
// than pods in the cache.
const pageSize = 500

// liveView is a view of a job's pods that was read from the API server. It corrects the cache for up to cacheLag,
// because an older state from the cache must not undo a decision.
type liveView struct {
	// version is the resourceVersion of the view.
	version string
	pods    map[types.UID]*corev1.Pod
	// names holds the UIDs of the pods by name.
	names map[string]types.UID
	// unshown holds the pods that the cache has not shown yet.
	unshown map[types.UID]*corev1.Pod
	// until is the time after which the view is no longer used.
	until time.Time
}

// readLive reads from the API server the pods that have the label with the job's name and whose controller is the job.
func (o *observer) readLive(ctx context.Context, job *engine.Job) (*liveView, error) {
	view := &liveView{pods: map[types.UID]*corev1.Pod{}, names: map[string]types.UID{}, until: o.clock.Now().Add(cacheLag)}
	for token := ""; ; {
		var page corev1.PodList
		err := o.live.List(ctx, &page, client.InNamespace(job.Namespace), client.MatchingLabels{batch.LabelJobName: job.Name},
			client.Limit(pageSize), client.Continue(token))
		if err != nil {
			return nil, fmt.Errorf("reading the pods of %s/%s from the API server: %w", job.Namespace, job.Name, err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.UID == job.UID {
				view.pods[pod.UID], view.names[pod.Name] = trimPod(pod), pod.UID
			}
		}
		view.version = page.ResourceVersion
		if token = page.Continue; token == "" {
			view.unshown = maps.Clone(view.pods)
			return view, nil
		}
	}
}

// list returns the pods of the view, and the pods that the cache still shows although they no longer exist, unless
// other pods have their names.
func (v *liveView) list(cached []*corev1.Pod) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(v.pods))
	for _, pod := range v.pods {
		pods = append(pods, pod)
	}
	for _, pod := range cached {
		if _, there := v.pods[pod.UID]; !there && !v.replaced(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// vanished returns the UIDs of the pods that the cache shows as not being deleted although they no longer exist, unless
// other pods have their names. Only the watch shows whether they succeeded before they were deleted.
func (v *liveView) vanished(cached []*corev1.Pod) (pods []types.UID) {
	for _, pod := range cached {
		if _, there := v.pods[pod.UID]; !there && pod.DeletionTimestamp == nil && !v.replaced(pod) {
			pods = append(pods, pod.UID)
		}
	}
	return pods
}

// correct returns the newest known state of a cached pod; nil if a newer pod has the same name. A pod that no longer
// exists remains as the cache shows it until the cache shows its end, because only the watch shows whether it succeeded
// before it was deleted.
func (v *liveView) correct(cached *corev1.Pod) *corev1.Pod {
	live, there := v.pods[cached.UID]
	switch {
	case there && older(cached.ResourceVersion, live.ResourceVersion):
		return live
	case !there && v.replaced(cached) && older(cached.ResourceVersion, v.version):
		return nil
	default:
		return cached
	}
}

// replaced reports whether another pod in the view has the pod's name.
func (v *liveView) replaced(pod *corev1.Pod) bool {
	uid, taken := v.names[pod.Name]
	return taken && uid != pod.UID
}

// older reports whether resourceVersion a is before b. It returns false if they cannot be compared.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
