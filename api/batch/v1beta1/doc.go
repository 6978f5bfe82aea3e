// Package v1beta1 holds the types of API group batch.tensorstack.dev/v1beta1: jobs whose pods start together, find each
// other by name and are restarted, paused, debugged and cleaned up as one.
//
// +kubebuilder:object:generate=true
// +groupName=batch.tensorstack.dev
package v1beta1
