package view

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// TestCopyName verifies that the name of a copy is not taken, and that the copy is valid if the original is.
func TestCopyName(t *testing.T) {
	long := strings.Repeat("a", 54) // with -worker-9 it has 63 characters
	cut := strings.Repeat("a", 52)
	for _, c := range []struct {
		name     string
		replicas int32
		taken    []string
		want     string
	}{
		{"mnist", 1, nil, "mnist-2"}, {"mnist", 1, []string{"mnist-2", "mnist-3", "mnist-5"}, "mnist-4"}, {"mnist-2", 1, nil, "mnist-2-2"},
		{long, 10, nil, cut + "-2"}, {long, 10, []string{cut + "-2"}, cut + "-3"}, {strings.Repeat("a", 51) + "-aa", 10, nil, strings.Repeat("a", 51) + "-2"},
		{strings.Repeat("a", 52), 1000, nil, strings.Repeat("a", 50) + "-2"},
	} {
		job := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: c.name}, Spec: batch.GenericJobSpec{ReplicaSpecs: []batch.ReplicaSpec{
			{Type: "w", Template: template()}, {Type: "worker", Replicas: &c.replicas, Template: template()}}}}
		kind := &kinds.All[slices.IndexFunc(kinds.All, func(k kinds.Kind) bool { return k.Name == "GenericJob" })]
		got := CopyName(&observed.Job{Kind: kind, Object: job}, func(name string) bool { return slices.Contains(c.taken, name) })
		if got != c.want {
			t.Errorf("the copy of %s is called %s, want %s", c.name, got, c.want)
		}
		before := kind.Validate(job, observed.AsInstalled)
		if job.Name = got; len(before) > 0 || len(kind.Validate(job, observed.AsInstalled)) > 0 {
			t.Errorf("%s with %d replicas: %v; the copy: %v", c.name, c.replicas, before, kind.Validate(job, observed.AsInstalled))
		}
	}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}}}
}
