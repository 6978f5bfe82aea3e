package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// ReadShape parses the value of a profile, which is YAML: the largest requests by resource. It fails if the text names
// no resource, if a limit is negative, or if pods cannot request a resource, for example because its name is
// misspelled.
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

// over returns a description of each request that exceeds its limit, sorted by the name of the resource.
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
