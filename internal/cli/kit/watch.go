package kit

import (
	"context"
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/cli/watch"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// JobSource returns a source that watches one job.
func (c *Cluster) JobSource(kind *kinds.Kind, namespace, name string) watch.Source {
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	return c.jobsSource(kind, namespace, func(o *metav1.ListOptions) { o.FieldSelector = only })
}

// JobsSource returns a source that watches the jobs of a kind that match a label selector. An empty namespace selects
// all namespaces.
func (c *Cluster) JobsSource(kind *kinds.Kind, namespace, labels string) watch.Source {
	return c.jobsSource(kind, namespace, func(o *metav1.ListOptions) { o.LabelSelector = labels })
}

// jobsSource returns a source that watches the jobs that restrict selects.
func (c *Cluster) jobsSource(kind *kinds.Kind, namespace string, restrict func(*metav1.ListOptions)) watch.Source {
	client := c.Jobs(kind, namespace)
	return watch.Source{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			restrict(&o)
			return client.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			restrict(&o)
			return client.Watch(ctx, o)
		},
	}
}

// PodSource returns a source that watches the pods in a job's namespace that match a label selector, which should
// select only pods of the job.
func (c *Cluster) PodSource(j *Job, labels string) watch.Source {
	return podSource(labels, c.Core.Pods(j.GetNamespace()))
}

// PodMetadataSource returns a source that watches the metadata of a job's pods.
func (c *Cluster) PodMetadataSource(j *Job) (watch.Source, error) {
	client, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return watch.Source{}, fmt.Errorf("making a client: %w", err)
	}
	return podSource(j.Selector(), client.Resource(podResource).Namespace(j.GetNamespace())), nil
}

// podSource returns a source that uses the client pods to watch the pods that match a label selector.
func podSource[L runtime.Object](labels string, pods interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error)
}) watch.Source {
	return watch.Source{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = labels
			return pods.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = labels
			return pods.Watch(ctx, o)
		},
	}
}

// WatchedJob is the latest version of a watched job.
type WatchedJob struct {
	*Job
	// Deleted is true once the job is deleted or another job has its name.
	Deleted bool
}

// Over reports whether the job has finished or is deleted.
func (w *WatchedJob) Over() bool {
	finished, _ := observed.Finished(w.Status())
	return finished || w.Deleted
}

// Take applies a change to the job. The change must not be of the type Lost or Back.
func (w *WatchedJob) Take(change watch.Change) error {
	var raw *unstructured.Unstructured
	for _, o := range change.Objects {
		// An object with the same name and another UID is another job.
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetUID() == w.GetUID() {
			raw = u
		}
	}
	if change.Type == watch.Gone || raw == nil {
		w.Deleted = w.Deleted || change.Type != watch.Set
		return nil
	}
	j, err := observed.New(w.Kind, raw)
	if err != nil {
		return err
	}
	w.Job = j
	return nil
}

// Ages returns the creation times of a job's pods, by the UIDs of the pods.
func (c *Cluster) Ages(ctx context.Context, j *Job) (view.Ages, error) {
	client, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	pods, err := client.Resource(podResource).Namespace(j.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: j.Selector()})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	ages := view.Ages{}
	for i := range pods.Items {
		ages[string(pods.Items[i].UID)] = pods.Items[i].CreationTimestamp.Time
	}
	return ages, nil
}

// Events returns the events about an object, the oldest first. An empty uid selects the events of all objects with the
// name, such as the earlier pods of a replica.
func (c *Cluster) Events(ctx context.Context, namespace, name string, uid types.UID) ([]corev1.Event, error) {
	about := fields.Set{"involvedObject.name": name}
	if uid != "" {
		about["involvedObject.uid"] = string(uid)
	}
	list, err := c.Core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: about.String()})
	if err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	sort.SliceStable(list.Items, func(a, b int) bool {
		return observed.EventTime(&list.Items[a]).Before(observed.EventTime(&list.Items[b]))
	})
	return list.Items, nil
}

// ContainerState returns the state of a container or init container. It returns the zero value if the pod's status has
// none.
func ContainerState(pod *corev1.Pod, name string) corev1.ContainerState {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return statuses[i].State
			}
		}
	}
	return corev1.ContainerState{}
}

// OrNotStarted returns a phase, or "not started yet" if the phase is empty.
func OrNotStarted[T ~string](phase T) string {
	if phase == "" {
		return "not started yet"
	}
	return string(phase)
}
