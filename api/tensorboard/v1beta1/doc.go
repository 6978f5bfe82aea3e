// Package v1beta1 holds the types of API group tensorstack.dev/v1beta1: TensorBoards, which show the logs of training
// jobs.
//
// +kubebuilder:object:generate=true
// +groupName=tensorstack.dev
package v1beta1
