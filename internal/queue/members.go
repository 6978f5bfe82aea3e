package queue

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// podsOf lists the pods of a queue: the pods of its groups, and the pods that name the queue and have no group, or a
// group that does not exist. groups are all groups of the queue.
func (k *reconciler) podsOf(ctx context.Context, queue string, groups []scheduling.PodGroup) ([]corev1.Pod, error) {
	var named corev1.PodList
	if err := k.pods.List(ctx, &named, client.MatchingFields{byQueue: queue}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of queue %s: %w", queue, err)
	}
	here := make(map[types.NamespacedName]bool, len(groups))
	for i := range groups {
		here[client.ObjectKeyFromObject(&groups[i])] = true
	}
	pods := make([]corev1.Pod, 0, len(named.Items))
	for i := range named.Items {
		p := &named.Items[i]
		if keys := groupsOf(p); len(keys) > 0 && !here[keys[0]] {
			if elsewhere, err := k.groupQueue(ctx, p); err != nil {
				return nil, err
			} else if elsewhere != "" {
				continue
			}
		}
		pods = append(pods, *p)
	}
	for i := range groups {
		g := &groups[i]
		var members corev1.PodList
		err := k.pods.List(ctx, &members, client.InNamespace(g.Namespace), client.MatchingFields{byGroup: g.Name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, fmt.Errorf("listing the pods of group %s/%s: %w", g.Namespace, g.Name, err)
		}
		for j := range members.Items {
			if p := &members.Items[j]; queueOf(p) != queue {
				pods = append(pods, *p)
			}
		}
	}
	return pods, nil
}

// groupQueue returns the queue of a pod's group. It returns an empty string if the pod has no group or the group does
// not exist.
func (k *reconciler) groupQueue(ctx context.Context, pod client.Object) (string, error) {
	keys := groupsOf(pod)
	if len(keys) == 0 {
		return "", nil
	}
	g := &scheduling.PodGroup{}
	if err := k.client.Get(ctx, keys[0], g); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("reading group %s: %w", keys[0], err)
	}
	return g.Spec.Queue, nil
}

// queuesOf lists the queues whose status may depend on a pod.
func (k *reconciler) queuesOf(ctx context.Context, pod client.Object) []types.NamespacedName {
	queues := []types.NamespacedName{{Name: queueOf(pod)}}
	if q, err := k.groupQueue(ctx, pod); err == nil && q != "" && q != queues[0].Name { // only an ended cache fails
		queues = append(queues, types.NamespacedName{Name: q})
	}
	return queues
}

// queueOf returns the queue that a pod names, or the default queue.
func queueOf(o client.Object) string {
	if q := o.GetLabels()[scheduling.LabelQueue]; q != "" {
		return q
	}
	return scheduling.DefaultQueue
}

// groupsOf returns the key of a pod's group as a list of one element, or nil if the pod has no group.
func groupsOf(o client.Object) []types.NamespacedName {
	if name := o.GetLabels()[scheduling.LabelGroupName]; name != "" {
		return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: name}}
	}
	return nil
}

// queuesWithProfile lists the queues that have a profile.
func (k *reconciler) queuesWithProfile(ctx context.Context, _ client.Object) []types.NamespacedName {
	var queues scheduling.QueueList
	if err := k.client.List(ctx, &queues); err != nil {
		return nil // only an ended cache fails, and then the manager also ends
	}
	var names []types.NamespacedName
	for i := range queues.Items {
		if queues.Items[i].Spec.ResourceShapeProfile != "" {
			names = append(names, types.NamespacedName{Name: queues.Items[i].Name})
		}
	}
	return names
}
