package observed

import (
	"cmp"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	componentresource "k8s.io/component-helpers/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// Demand holds the requests of a pod that is bound to a node, with the queue and the user that they count for.
type Demand struct {
	Pod      *corev1.Pod
	Requests corev1.ResourceList
	// Queue is the queue of the t9k-scheduler; empty for a pod of another scheduler.
	Queue string
	// User is the user who requested the queue; empty if none was recorded.
	User string
}

// Demands returns the demands of those pods that are bound to a node and have not finished. The queue of a pod is that
// of its group if groups contains the group, and otherwise the one that the pod names. The user is the one that the
// group records, or else the one that the pod records.
func Demands(pods []*corev1.Pod, groups []*scheduling.PodGroup) []Demand {
	byName := make(map[string]*scheduling.PodGroup, len(groups))
	for _, g := range groups {
		byName[g.Namespace+"/"+g.Name] = g
	}
	all := make([]Demand, 0, len(pods))
	for _, p := range pods {
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		d := Demand{Pod: p, Requests: componentresource.PodRequests(p, componentresource.PodResourcesOptions{})}
		queue, by := p.Labels[scheduling.LabelQueue], p.Annotations[scheduling.AnnotationRequestedBy]
		if g := byName[p.Namespace+"/"+p.Labels[scheduling.LabelGroupName]]; g != nil {
			queue, by = g.Spec.Queue, cmp.Or(g.Annotations[scheduling.AnnotationRequestedBy], by)
		}
		if p.Spec.SchedulerName == scheduling.SchedulerName {
			d.Queue = cmp.Or(queue, scheduling.DefaultQueue)
		}
		d.User = Requester(by)
		all = append(all, d)
	}
	return all
}

// Requester returns the name of the user in a value of scheduling.AnnotationRequestedBy; empty if there is none.
func Requester(note string) string {
	var names []string
	if err := json.Unmarshal([]byte(note), &names); err != nil || len(names) == 0 {
		return ""
	}
	return names[0]
}

// Ready reports whether a node is ready.
func Ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
