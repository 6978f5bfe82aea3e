package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "tensorstack.dev", Version: "v1beta1"}

// SchemeGroupVersion is GroupVersion under the name that generated code expects.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &TensorBoard{}, &TensorBoardList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// LabelTensorBoard holds the name of the TensorBoard to which an object belongs. The operator sets it on the
// Deployment, the Service and the pods.
const LabelTensorBoard = "tensorstack.dev/tensorboard"
