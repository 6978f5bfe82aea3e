package queue

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// TestUsedResourcesAreShownWithoutQuota verifies that the usage of a resource is shown whether or not the queue has a
// quota for it.
func TestUsedResourcesAreShownWithoutQuota(t *testing.T) {
	list := func(text string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for part := range strings.FieldsSeq(text) {
			name, amount, _ := strings.Cut(part, "=")
			l[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
		return l
	}
	for _, test := range []struct{ quota, allocated, want string }{
		{"", "cpu=2 memory=4Gi nvidia.com/gpu=8", "cpu 2, memory 4Gi, nvidia.com/gpu 8"},
		{"cpu=10", "cpu=2 nvidia.com/gpu=8", "cpu 2/10, nvidia.com/gpu 8"},
		{"cpu=10", "", "cpu 0/10"},
		{"", "cpu=0", "-"},
		{"", "", "-"},
	} {
		q := &scheduling.Queue{}
		q.Spec.Quota.Requests, q.Status.Allocated = list(test.quota), list(test.allocated)
		if got := used(q); got != test.want {
			t.Errorf("quota %q, allocated %q: %q, want %q", test.quota, test.allocated, got, test.want)
		}
	}
}
