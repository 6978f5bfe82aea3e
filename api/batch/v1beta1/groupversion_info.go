// Package v1beta1 holds the types of API group batch.tensorstack.dev/v1beta1: jobs whose pods start together, find each
// other by name and are restarted, paused, debugged and cleaned up as one.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=batch.tensorstack.dev
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "batch.tensorstack.dev", Version: "v1beta1"}

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &GenericJob{}, &GenericJobList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
