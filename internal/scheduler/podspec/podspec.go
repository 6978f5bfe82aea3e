// Package podspec derives from a pod's object the properties that the scheduler needs: which scheduler places it, its
// requests, and which pods are alike.
package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// Ours reports whether the t9k-scheduler places a pod.
func Ours(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == scheduling.SchedulerName }

// Requests returns the sum of the requests of a pod. No amount is larger than core.MaxRequest.
func Requests(pod *corev1.Pod) core.Resources {
	return amountsUpTo(core.MaxRequest, resource.PodRequests(pod, resource.PodResourcesOptions{}))
}

// Amounts converts a resource list: CPUs in thousandths, and everything else in its own unit.
func Amounts(list corev1.ResourceList) core.Resources { return amountsUpTo(math.MaxInt64, list) }

// amountsUpTo returns Amounts with no amount larger than limit. A quantity can exceed an int64, and its Value would
// then be negative.
func amountsUpTo(limit int64, list corev1.ResourceList) core.Resources {
	r := make(core.Resources, len(list))
	for name, q := range list {
		switch cpu := name == corev1.ResourceCPU; {
		case cpu && q.CmpInt64(limit/1000) > 0, q.CmpInt64(limit) > 0:
			r[string(name)] = limit
		case cpu:
			r[string(name)] = q.MilliValue()
		default:
			r[string(name)] = q.Value()
		}
	}
	return r
}

// Shape returns a string that is equal for pods that need the same room on the same nodes. It is empty for pods with
// affinity, topology spread constraints, resource claims, volumes that bind to nodes, host ports or a node.
func Shape(pod *corev1.Pod, requests core.Resources) string {
	s := &pod.Spec
	if s.Affinity != nil || len(s.TopologySpreadConstraints) > 0 || len(s.ResourceClaims) > 0 || s.NodeName != "" {
		return ""
	}
	if slices.ContainsFunc(s.Volumes, bindsToNodes) || slices.ContainsFunc(s.InitContainers, takesPorts) || slices.ContainsFunc(s.Containers, takesPorts) {
		return ""
	}
	var b strings.Builder
	if s.Priority != nil { // a filter counts the room of nominated pods by priority
		fmt.Fprintf(&b, "%d:", *s.Priority)
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		fmt.Fprintf(&b, "%s=%d,", name, requests[name])
	}
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		fmt.Fprintf(&b, ";%q=%q", key, s.NodeSelector[key])
	}
	for i := range s.Tolerations {
		t := &s.Tolerations[i]
		fmt.Fprintf(&b, ";%q %s %q %s", t.Key, t.Operator, t.Value, t.Effect)
	}
	return b.String()
}

func bindsToNodes(v corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil
}

func takesPorts(c corev1.Container) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
}

// Queue returns the queue that a pod names, or the default queue.
func Queue(pod *corev1.Pod) string {
	if q := pod.Labels[scheduling.LabelQueue]; q != "" {
		return q
	}
	return scheduling.DefaultQueue
}

// Key returns the namespace and the name of a pod.
func Key(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// Constraints returns a string that is equal for pods that may use the same nodes according to labels and taints.
func Constraints(pod *corev1.Pod) string {
	asked := struct {
		Selector    map[string]string    `json:",omitempty"`
		Affinity    *corev1.NodeSelector `json:",omitempty"`
		Tolerations []corev1.Toleration  `json:",omitempty"`
	}{Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		asked.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	text, err := json.Marshal(asked)
	if err != nil { // these types can always be marshaled
		return string(pod.UID)
	}
	return string(text)
}

// Reserves reports whether Reserve plugins hold volumes or devices for a pod.
func Reserves(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes, bindsToNodes)
}

// Attracted reports whether a pod may fit after other pods start, because of required pod affinity or topology spread.
func Attracted(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	return a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		len(pod.Spec.TopologySpreadConstraints) > 0
}
