package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "scheduler.tensorstack.dev", Version: "v1beta1"}

// SchemeGroupVersion is GroupVersion under the name that generated code expects.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PodGroup{}, &PodGroupList{}, &Queue{}, &QueueList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// SchedulerName is the schedulerName of pods that the t9k-scheduler schedules.
const SchedulerName = "t9k-scheduler"

// Labels by which the t9k-scheduler assigns a pod to a group and a queue. They cannot change on a live pod.
const (
	// LabelGroupName names the pod's PodGroup.
	LabelGroupName = "scheduler.tensorstack.dev/group-name"
	// LabelQueue names the pod's queue.
	LabelQueue = "scheduler.tensorstack.dev/queue"
	// LabelRole names the pod's role within its PodGroup.
	LabelRole = "scheduler.tensorstack.dev/role"
)

// AnnotationRequestedBy holds the user who requested the queue of a PodGroup, a pod, a job or a TensorBoard, and the
// user's groups, as a JSON list. Admission sets it and overwrites other values.
const AnnotationRequestedBy = "scheduler.tensorstack.dev/requested-by"

// TopologyPolicy says how the pods of a group may be spread over topology domains: sets of nodes with the same value of
// the label that topologyLabel in the scheduler's configuration names.
//
// +kubebuilder:validation:Enum=BestEffort;Required
type TopologyPolicy string

const (
	// TopologyBestEffort places the group in few domains if it can, and spreads it otherwise.
	TopologyBestEffort TopologyPolicy = "BestEffort"
	// TopologyRequired places all pods of the group in one domain. The group waits until its minimum fits into one.
	TopologyRequired TopologyPolicy = "Required"
)

// PodGroup makes the t9k-scheduler start the pods of a group all together or not at all. A pod belongs to the group
// that its label scheduler.tensorstack.dev/group-name names.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pg
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queue`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.minMember`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="GroupScheduled")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="GroupScheduled")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:fieldPath=".metadata",rule="size(self.metadata.name) <= 63",message="a group's name is a label of its pods, which has at most 63 characters: shorten it"
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which pods start together.
	Spec PodGroupSpec `json:"spec"`
	// Status is the observed state of the group.
	// +optional
	Status PodGroupStatus `json:"status,omitzero"`
}

// PodGroupList is a list of PodGroups.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodGroup `json:"items"`
}

// PodGroupSpec says which pods start together.
//
// +kubebuilder:validation:XValidation:rule="!has(self.roles) || self.roles.map(r, r.minMember).sum() <= self.minMember",message="the minimums of the roles add up to more than minMember: raise minMember to their sum, or lower them"
type PodGroupSpec struct {
	// MinMember is the number of pods that must fit at the same time. The scheduler binds none of them before that.
	// +kubebuilder:validation:Minimum=1
	MinMember int32 `json:"minMember"`
	// Roles lists minimums for roles. A pod has the role that its label scheduler.tensorstack.dev/role names. The sum
	// of the minimums must not be more than minMember. Unset: any minMember pods are enough.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Roles []PodGroupRole `json:"roles,omitempty"`
	// Queue is the name of the queue in which the group waits. Defaults to "default".
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="no queue has such a name: use lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
	Queue string `json:"queue,omitempty"`
	// Priority is the priority of the group within its queue, from 0 to 100. The scheduler tries groups with a higher
	// priority first. Defaults to 0. The queue may allow a smaller range (groupPriority).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Priority int32 `json:"priority,omitempty"`
	// TopologyPolicy says how the pods of the group may be spread over topology domains, as set by topologyLabel in the
	// scheduler's configuration. BestEffort: in few domains if possible. Required: in one domain. Unset: no preference.
	// +optional
	TopologyPolicy TopologyPolicy `json:"topologyPolicy,omitempty"`
}

// PodGroupRole is the minimum number of pods of one role.
type PodGroupRole struct {
	// Name of the role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// MinMember is the number of pods of this role that must fit at the same time.
	// +kubebuilder:validation:Minimum=0
	MinMember int32 `json:"minMember"`
}

// PodGroupConditionType names one aspect of a group's state.
type PodGroupConditionType string

const (
	// SufficientGroupMember is True while at least minMember pods of the group exist and are not being deleted. The
	// operator sets it.
	SufficientGroupMember PodGroupConditionType = "SufficientGroupMember"
	// GroupScheduled is True once the group's minimum is bound to nodes, and False again when no bound or finished pod
	// of the group is left. The scheduler sets it.
	GroupScheduled PodGroupConditionType = "GroupScheduled"
)

// Reasons of the conditions of a group.
const (
	// ReasonScheduled: the minimum is bound.
	ReasonScheduled = "Scheduled"
	// ReasonEnoughMembers: at least minMember pods exist. Finished pods count.
	ReasonEnoughMembers = "EnoughMembers"
	// ReasonNotEnoughMembers: fewer pods exist than minMember or the minimum of a role.
	ReasonNotEnoughMembers = "NotEnoughMembers"
	// ReasonQueueNotFound: the queue does not exist.
	ReasonQueueNotFound = "QueueNotFound"
	// ReasonQueueClosed: the queue is closed, so no new group starts in it.
	ReasonQueueClosed = "QueueClosed"
	// ReasonNotAdmitted: the queue is not open to the group's namespace, and the user who requested the group has no
	// right to use the queue.
	ReasonNotAdmitted = "NotAdmitted"
	// ReasonQuotaExceeded: the group needs more than the unused part of the queue's quota.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodTooLarge: pods of the group request more than the queue's resourceShapeProfile allows.
	ReasonPodTooLarge = "PodTooLarge"
	// ReasonShapeUnknown: the queue's resourceShapeProfile cannot be read.
	ReasonShapeUnknown = "ResourceShapeUnknown"
	// ReasonNoRoom: the nodes have no room for the group's minimum.
	ReasonNoRoom = "NoRoom"
	// ReasonImpossible: the group could not start even if nothing else ran, because its minimum exceeds the whole quota
	// of its queue or does not fit on empty nodes. The scheduler tries the group again when the queue or a node
	// changes.
	ReasonImpossible = "Impossible"
	// ReasonPreempting: pods of other queues are being evicted for the group.
	ReasonPreempting = "Preempting"
	// ReasonReserved: the group has waited for a long time. The scheduler has reserved room on nodes for it, and the
	// group starts when the pods that use this room have ended.
	ReasonReserved = "Reserved"
	// ReasonBindingFailed: the scheduler could not bind the pods to the nodes that it had chosen. It will try again.
	ReasonBindingFailed = "BindingFailed"
)

// PodGroupCondition describes one aspect of the state of a group.
type PodGroupCondition struct {
	// Type names the aspect.
	Type PodGroupConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is the reason of the status, as a CamelCase word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a message for people about the status.
	// +optional
	Message string `json:"message,omitempty"`
	// TransitionID is a unique ID of the latest change of the condition. It changes whenever the status, the reason or
	// the message changes.
	// +optional
	TransitionID string `json:"transitionID,omitempty"`
}

// PodGroupStatus is the observed state of a group.
type PodGroupStatus struct {
	// Conditions holds the latest observations of the group's state.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []PodGroupCondition `json:"conditions,omitempty"`
	// Allocated is the sum, by resource, of the requests of the group's pods that are bound to a node and have not
	// finished.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
	// Pending is the number of the group's pods in phase Pending.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// Running is the number of pods in phase Running.
	// +optional
	Running int32 `json:"running,omitempty"`
	// Succeeded is the number of pods in phase Succeeded.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
	// Failed is the number of pods in phase Failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Unknown is the number of pods in phase Unknown.
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
}
