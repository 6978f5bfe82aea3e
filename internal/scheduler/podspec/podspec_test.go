package podspec

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"tensorstack.dev/batch/internal/scheduler/core"
)

// TestHugeRequestsCountAgainstQuotas verifies that requests that are too large to add up, even if their sum does not
// fit an int64, count as core.MaxRequest, so that they cannot circumvent a quota.
func TestHugeRequestsCountAgainstQuotas(t *testing.T) {
	for _, text := range []string{"9223372036854775807", "9223372036854775", "9223372036854776", "9E", "4611686018427387904"} {
		for _, containers := range []int{1, 2, 3} {
			huge := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text), corev1.ResourceMemory: resource.MustParse(text)}
			pod := &corev1.Pod{}
			for range containers {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: huge}})
			}
			for name, v := range Requests(pod) {
				if v != core.MaxRequest {
					t.Errorf("%d containers with %s of %s count as %d", containers, text, name, v)
				}
			}
		}
	}
	if core.MaxRequest > math.MaxInt64/100_000 {
		t.Error("the requests of 100,000 pods can overflow")
	}
	quota := Amounts(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9E"), corev1.ResourceMemory: resource.MustParse("100Ti")})
	if quota["cpu"] != math.MaxInt64 || quota["memory"] != 100<<40 {
		t.Errorf("the quota is %v", quota)
	}
}
