package engine

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// ReservedPrefixes begin the keys of the labels and annotations by which the operator and the scheduler know a pod.
var ReservedPrefixes = []string{"tensorstack.dev/", batch.GroupVersion.Group + "/", scheduling.GroupVersion.Group + "/"}

// Reserved tells whether a label or an annotation of a pod is the operator's to set. A template that could set one would put
// the job's pods into a queue, or into a group, for which nobody asked its author for the right.
func Reserved(key string) bool {
	for _, prefix := range ReservedPrefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// RoleLabels are the labels that are the same for all pods of a role.
func (j *Job) RoleLabels(role string) map[string]string {
	labels := j.labels()
	labels[batch.LabelReplicaType] = role
	if j.Gang != nil {
		labels[scheduling.LabelGroupName] = j.Name
		labels[scheduling.LabelQueue] = j.Gang.Queue
		labels[scheduling.LabelRole] = role
	}
	return labels
}

// schedule has a pod scheduled as the job says. A template decides neither that the t9k-scheduler takes the pod nor where that
// one puts it, even if it got past admission.
func (j *Job) schedule(s *corev1.PodSpec) {
	switch {
	case j.Gang != nil:
		s.SchedulerName, s.NodeName = scheduling.SchedulerName, ""
	case s.SchedulerName == scheduling.SchedulerName:
		s.SchedulerName = ""
	}
}

// unreserved are the entries of a template's labels or annotations that the operator does not set.
func unreserved(of map[string]string) map[string]string {
	out := make(map[string]string, len(of))
	for key, value := range of {
		if !Reserved(key) {
			out[key] = value
		}
	}
	return out
}
