package engine

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// ReservedPrefixes are the prefixes of label and annotation keys that only the operator and the scheduler may set.
var ReservedPrefixes = []string{"tensorstack.dev/", batch.GroupVersion.Group + "/", scheduling.GroupVersion.Group + "/"}

// Reserved reports whether only the operator and the scheduler may set a label or annotation with the given key. If
// templates could set such keys, a user could put the job's pods into a queue or group without a check of the user's
// rights.
func Reserved(key string) bool {
	for _, prefix := range ReservedPrefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// RoleLabels returns the labels that the operator sets on every pod of a role.
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

// schedule sets the pod's scheduler. A template must not select the t9k-scheduler, nor the node of a pod that the
// t9k-scheduler places, even if the template got past admission.
func (j *Job) schedule(s *corev1.PodSpec) {
	switch {
	case j.Gang != nil:
		s.SchedulerName, s.NodeName = scheduling.SchedulerName, ""
	case s.SchedulerName == scheduling.SchedulerName:
		s.SchedulerName = ""
	}
}

// unreserved returns the entries of a template's labels or annotations that are not reserved.
func unreserved(of map[string]string) map[string]string {
	out := make(map[string]string, len(of))
	for key, value := range of {
		if !Reserved(key) {
			out[key] = value
		}
	}
	return out
}
