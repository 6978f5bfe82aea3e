// Package v1beta1 holds the types of API group scheduler.tensorstack.dev/v1beta1: PodGroups, whose pods are scheduled
// all together or not at all, and Queues, which limit and order them.
//
// +kubebuilder:object:generate=true
// +groupName=scheduler.tensorstack.dev
package v1beta1
