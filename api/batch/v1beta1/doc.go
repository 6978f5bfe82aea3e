// Package v1beta1 holds the types of API group batch.tensorstack.dev/v1beta1: jobs that consist of several pods. The
// pods of a job find each other by name, and the job can be restarted, paused, debugged and cleaned up as a whole.
//
// +kubebuilder:object:generate=true
// +groupName=batch.tensorstack.dev
package v1beta1
