package observed

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// Requests returns the requests of a pod as a scheduler computes them: for each resource, the sum over the containers
// or, if that is larger, the largest init container, including sidecars and overhead. Pod-level requests take
// precedence. The spec may lack the defaults that the API server sets.
func Requests(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Overhead: spec.Overhead}}
	for _, c := range spec.InitContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Resources: withDefaults(c.Resources), RestartPolicy: c.RestartPolicy})
	}
	for _, c := range spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: withDefaults(c.Resources)})
	}
	if spec.Resources != nil {
		pod.Spec.Resources = spec.Resources.DeepCopy()
		ofContainers := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
		for name, limit := range spec.Resources.Limits {
			if _, ok := ofContainers[name]; !ok {
				setDefault(&pod.Spec.Resources.Requests, name, limit)
			}
		}
	}
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// withDefaults sets missing requests to the limits, as the API server does.
func withDefaults(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: maps.Clone(r.Requests)}
	for name, limit := range r.Limits {
		setDefault(&out.Requests, name, limit)
	}
	return out
}

// setDefault sets a quantity if the list has none for the resource.
func setDefault(list *corev1.ResourceList, name corev1.ResourceName, to apiresource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = to
}
