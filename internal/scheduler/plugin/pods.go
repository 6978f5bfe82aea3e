package plugin

import (
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// ours tells whether a pod is one that the t9k-scheduler places.
func ours(pod *corev1.Pod) bool { return pod.Spec.SchedulerName == scheduling.SchedulerName }

func requestsOf(pod *corev1.Pod) core.Resources {
	return amounts(resource.PodRequests(pod, resource.PodResourcesOptions{}))
}

// amounts counts CPUs in thousandths and everything else in its own unit.
func amounts(list corev1.ResourceList) core.Resources {
	r := make(core.Resources, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			r[string(name)] = q.MilliValue()
		} else {
			r[string(name)] = q.Value()
		}
	}
	return r
}

// shapeOf is the same for pods that need the same room on the same nodes. Pods that look at other pods or at volumes have none.
func shapeOf(pod *corev1.Pod, requests core.Resources) string {
	s := &pod.Spec
	if s.Affinity != nil || len(s.TopologySpreadConstraints) > 0 || len(s.ResourceClaims) > 0 || s.NodeName != "" {
		return ""
	}
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil {
			return ""
		}
	}
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			for _, p := range containers[i].Ports {
				if p.HostPort != 0 {
					return ""
				}
			}
		}
	}
	var b strings.Builder
	for _, name := range sortedNames(requests) {
		fmt.Fprintf(&b, "%s=%d,", name, requests[name])
	}
	for _, key := range sortedNames(s.NodeSelector) {
		fmt.Fprintf(&b, ";%q=%q", key, s.NodeSelector[key])
	}
	for i := range s.Tolerations {
		t := &s.Tolerations[i]
		fmt.Fprintf(&b, ";%q %s %q %s", t.Key, t.Operator, t.Value, t.Effect)
	}
	return b.String()
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// queueLabel is the queue that a pod names, or the default one.
func queueLabel(pod *corev1.Pod) string {
	if q := pod.Labels[scheduling.LabelQueue]; q != "" {
		return q
	}
	return scheduling.DefaultQueue
}
