// Package waiting lists the groups that wait for nodes in a queue of the t9k-scheduler, with their order and reasons,
// and the place of a job among them. Start reading at List and Place.
package waiting

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

var groupResource = scheduling.GroupVersion.WithResource("podgroups")

// waitingPods returns the pods that wait for the t9k-scheduler, in all queues. An empty namespace selects all
// namespaces.
func waitingPods(ctx context.Context, c *kit.Cluster, namespace string) ([]*corev1.Pod, error) {
	list, err := c.Core.Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"spec.schedulerName": scheduling.SchedulerName, "spec.nodeName": "", "status.phase": string(corev1.PodPending)}.String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods that wait: %w", err)
	}
	return pointers(list.Items), nil
}

// Table renders waiting groups in order.
func Table(waiting []observed.Waiter, now time.Time, style view.Style, width int) []string {
	if len(waiting) == 0 {
		return []string{"  none"}
	}
	t := view.Table{Header: []string{"", "GROUP", "PODS", "PRIORITY", "AGE", "WHY"}, Text: true}
	for i, w := range waiting {
		t.Rows = append(t.Rows, view.Plainly(fmt.Sprint(i+1), w.Name, fmt.Sprint(w.Pods), fmt.Sprint(w.Priority), view.Age(w.Created, now),
			cmp.Or(w.Why, "not tried yet")))
	}
	return t.Lines(style, "  ", width)
}

// Groups lists the waiting and the running groups of a queue.
type Groups struct {
	// Waiting lists the groups with waiting pods, the next group first.
	Waiting []observed.Waiter
	// Running lists the groups with bound pods, by priority and then by age.
	Running []*scheduling.PodGroup
	// Within is the namespace of the groups if the user may not list the groups of all namespaces; otherwise empty.
	Within string
}

// List returns the groups of a queue. If the user may not list the groups and pods of all namespaces, it returns only
// those of the default namespace.
func List(ctx context.Context, c *kit.Cluster, queue string) (*Groups, error) {
	list, err := listIn(ctx, c, metav1.NamespaceAll, queue)
	if apierrors.IsForbidden(err) {
		return listIn(ctx, c, c.Namespace, queue)
	}
	return list, err
}

func listIn(ctx context.Context, c *kit.Cluster, namespace, queue string) (*Groups, error) {
	groups, err := listGroups(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	pods, err := waitingPods(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return &Groups{Waiting: observed.Waiters(queue, groups, pods), Running: observed.Running(queue, groups), Within: namespace}, nil
}

// listGroups returns the groups of a namespace. An empty namespace selects all namespaces.
func listGroups(ctx context.Context, c *kit.Cluster, namespace string) ([]*scheduling.PodGroup, error) {
	list, err := c.Objects.Resource(groupResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing groups: %w", err)
	}
	groups := make([]scheduling.PodGroup, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &groups[i]); err != nil {
			return nil, fmt.Errorf("reading group %s: %w", list.Items[i].GetName(), err)
		}
	}
	return pointers(groups), nil
}

// Place returns a job's place among the waiting groups of its queue as text; empty if none of its pods waits. The user
// must have the right to list the pods and groups of all namespaces.
func Place(ctx context.Context, c *kit.Cluster, j *kit.Job, queue string) (string, error) {
	pods, err := waitingPods(ctx, c, metav1.NamespaceAll)
	if err != nil {
		return "", err
	}
	own := func(p *corev1.Pod) bool {
		return p.Namespace == j.GetNamespace() && p.Labels[scheduling.LabelGroupName] == j.GetName()
	}
	if !slices.ContainsFunc(pods, own) {
		return "", nil
	}
	groups, err := listGroups(ctx, c, metav1.NamespaceAll)
	if err != nil {
		return "", err
	}
	return observed.Place(j.GetNamespace()+"/"+j.GetName(), observed.Waiters(queue, groups, pods), false), nil
}

// pointers returns pointers to the items of a list.
func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
