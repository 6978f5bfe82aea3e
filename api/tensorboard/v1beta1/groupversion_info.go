package v1beta1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "tensorstack.dev", Version: "v1beta1"}

// SchemeGroupVersion is GroupVersion under the name that generated code expects.
var SchemeGroupVersion = GroupVersion
