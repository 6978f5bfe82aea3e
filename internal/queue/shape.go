package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/yaml"
)

// ReadShape parses the value of a profile: the largest requests by resource, as YAML. It fails if a name is not a
// resource that pods can request, for example because it is misspelt.
func ReadShape(text string) (corev1.ResourceList, error) {
	var limits corev1.ResourceList
	if err := yaml.UnmarshalStrict([]byte(text), &limits); err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if len(limits) == 0 {
		return nil, errors.New("it names no resource: write lines such as cpu: 4")
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if q := limits[name]; q.Sign() < 0 {
			return nil, fmt.Errorf("%s is %s: a limit is 0 or more", name, q.String())
		}
		if !requestable(string(name)) {
			return nil, fmt.Errorf("pods do not request %s: name cpu, memory, ephemeral-storage, hugepages-SIZE, or a resource with its domain, "+
				"such as nvidia.com/gpu", name)
		}
	}
	return limits, nil
}

// requestable reports whether a pod can request a resource of this name.
func requestable(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) || strings.Contains(name, "/") && len(validation.IsQualifiedName(name)) == 0
}

// Requests returns what a pod requests from the scheduler: the sum of its containers or, if larger, the largest init
// container, with sidecars and overhead. The pod may lack the defaults that the API server sets.
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

// over describes the resources of which a pod requests more than it may.
func over(requests, limits corev1.ResourceList) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		if v, ok := requests[name]; ok && v.Cmp(limit) > 0 {
			all = append(all, fmt.Sprintf("%s %s requested, %s allowed", v.String(), name, limit.String()))
		}
	}
	return all
}
