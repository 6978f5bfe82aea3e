package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// T9kGangArgsKind is the kind of the arguments of the plugin T9kGang.
const T9kGangArgsKind = "T9kGangArgs"

// T9kGangArgs are the arguments of the plugin T9kGang in the configuration file of the t9k-scheduler (`--config`). The
// file is a KubeSchedulerConfiguration; the arguments are in the `pluginConfig` of the profile `t9k-scheduler`.
//
// +kubebuilder:object:root=true
type T9kGangArgs struct {
	metav1.TypeMeta `json:",inline"`
	// ReserveAfter is how long a group waits before the scheduler reserves room on nodes for it. 0s: the scheduler
	// reserves none.
	// +optional
	// +default="10m0s"
	ReserveAfter *metav1.Duration `json:"reserveAfter,omitempty"`
	// GangGracePeriod is how long a gang may stay partly bound, for example after a crash of the scheduler, before the
	// scheduler evicts its bound pods. It must be more than 0s.
	// +optional
	// +default="5m0s"
	GangGracePeriod *metav1.Duration `json:"gangGracePeriod,omitempty"`
	// TopologyLabel is the label of nodes whose values name the topology domains to which the `topologyPolicy` of
	// PodGroups refers, such as topology.kubernetes.io/zone. Unset: there are no topology domains.
	// +optional
	TopologyLabel string `json:"topologyLabel,omitempty"`
	// Tracing says where the scheduler sends traces of how groups are scheduled. Unset: the scheduler sends no traces.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`
}
