// Package v1alpha1 holds the types of the configuration files of the operator, the scheduler and the console,
// config.tensorstack.dev/v1alpha1. They are files of the programs and not objects of the cluster.
//
// +kubebuilder:object:generate=true
// +groupName=config.tensorstack.dev
package v1alpha1
