// Package v1beta1 holds the types of API group scheduler.tensorstack.dev/v1beta1: groups of pods that are scheduled all
// together or not at all.
//
// +kubebuilder:object:generate=true
// +groupName=scheduler.tensorstack.dev
package v1beta1
