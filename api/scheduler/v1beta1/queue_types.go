package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultQueue is the queue of pods and PodGroups that do not name a queue. Every installation has it.
const DefaultQueue = "default"

// Labels that administrators set on namespaces.
const (
	// LabelDefaultQueue names the queue that admission sets in new jobs and TensorBoards of the namespace that name no
	// queue. It needs Kubernetes 1.36 or later.
	LabelDefaultQueue = "scheduler.tensorstack.dev/default-queue"
	// LabelRequireQueue, with the value "true", makes admission refuse new jobs and TensorBoards of the namespace that
	// name no queue.
	LabelRequireQueue = "scheduler.tensorstack.dev/require-queue"
)

// ResourceShapesNamespace and ResourceShapes are the namespace and the name of the ConfigMap with the profiles that
// queues name in resourceShapeProfile.
const (
	ResourceShapesNamespace = "t9k-system"
	ResourceShapes          = "resource-shapes"
)

// Queue is a queue of the t9k-scheduler. It limits the sum of the requests of its pods, determines who may create pods
// in it, and orders the groups that wait in it.
//
// +kubebuilder:object:root=true
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=q
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Closed",type=boolean,JSONPath=`.spec.closed`
// +kubebuilder:printcolumn:name="Groups",type=integer,JSONPath=`.status.podGroups.total`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pods.pending`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.pods.running`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:fieldPath=".metadata",rule="size(self.metadata.name) <= 63",message="a queue's name is a label of its pods, which has at most 63 characters: shorten it"
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which resources the queue may use, and who may use the queue.
	// +optional
	Spec QueueSpec `json:"spec,omitzero"`
	// Status is the observed state of the queue.
	// +optional
	Status QueueStatus `json:"status,omitzero"`
}

// QueueList is a list of Queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

// QueueSpec says which resources a queue may use, and who may use the queue.
type QueueSpec struct {
	// Quota limits the sum of the requests of the queue's pods. Unset: no limit.
	// +optional
	Quota QueueQuota `json:"quota,omitzero"`
	// Priority is the priority of the queue, from 0 to 100. Groups of queues with a higher priority are scheduled
	// first, and may evict pods of preemptible queues with a lower priority. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Priority int32 `json:"priority,omitempty"`
	// GroupPriority is the range of priorities that groups of the queue may have. Admission refuses jobs and PodGroups
	// with another priority, unless the user has the RBAC verb "use" on all queues. The scheduler treats a priority
	// outside of the range as the nearest one in the range. Unset: 0 to 100.
	// +optional
	GroupPriority *PriorityRange `json:"groupPriority,omitempty"`
	// Preemptible says whether groups of queues with a higher priority may evict pods of this queue. Defaults to true.
	// +optional
	Preemptible *bool `json:"preemptible,omitempty"`
	// Closed keeps new groups from starting, and makes admission refuse new jobs and TensorBoards in the queue. Running
	// groups continue, and their pods are replaced. Defaults to false.
	// +optional
	Closed bool `json:"closed,omitempty"`
	// MaxDuration is the largest age of an unfinished pod of the queue, such as 1w2d or 90m, in the units y (365 days),
	// w, d, h, m, s and ms. The operator deletes older pods, and their jobs fail. Unset, empty or 0: no limit.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$')",message="write it like 1w2d or 90m: numbers with the units y, w, d, h, m, s and ms, in this order and each at most once"
	MaxDuration string `json:"maxDuration,omitempty"`
	// ResourceShapeProfile is a key of the ConfigMap resource-shapes in the namespace t9k-system. The value of the key
	// lists, as YAML, the largest requests that a pod of the queue may have, by resource. Unset: no limit. While the
	// key is missing or its value is invalid, nothing new starts in the queue.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]*$`
	ResourceShapeProfile string `json:"resourceShapeProfile,omitempty"`
	// NodeSelector selects the nodes that pods of the queue may use, by labels. Unset: all nodes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of matchExpressions is one of In, NotIn, Exists and DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="the operators In and NotIn need values, and the others take none"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// NamespaceSelector selects the namespaces in which everybody may use the queue, by labels. Unset: none. {}: all.
	// Users with the RBAC verb "use" on the queue may use it in any namespace.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of matchExpressions is one of In, NotIn, Exists and DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="the operators In and NotIn need values, and the others take none"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// PriorityRange is a range of priorities, both ends included.
//
// +kubebuilder:validation:XValidation:rule="(has(self.min) ? self.min : 0) <= (has(self.max) ? self.max : 100)",message="min is more than max: swap them"
type PriorityRange struct {
	// Min is the lowest priority. Defaults to 0. If it is above 0, jobs and PodGroups must set a priority.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Min *int32 `json:"min,omitempty"`
	// Max is the highest priority. Defaults to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Max *int32 `json:"max,omitempty"`
}

// QueueQuota limits the sum of the requests of a queue's pods.
type QueueQuota struct {
	// Requests limits the sum of the pods' requests, by resource: cpu, memory, ephemeral-storage, hugepages-SIZE, or a
	// resource with its domain, such as nvidia.com/gpu. A resource that is not listed has no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="a quota is 0 or more: leave a resource out to have no limit"
	// +kubebuilder:validation:XValidation:rule="self.all(r, r in ['cpu', 'memory', 'ephemeral-storage'] || r.startsWith('hugepages-') || r.contains('/'))",messageExpression="'pods do not request %s: name cpu, memory, ephemeral-storage, hugepages-SIZE, or a resource with its domain, such as nvidia.com/gpu'.format([self.filter(r, !(r in ['cpu', 'memory', 'ephemeral-storage'] || r.startsWith('hugepages-') || r.contains('/')))])",message="no pod requests such a resource"
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// QueueConditionType names one aspect of a queue's state.
type QueueConditionType string

const (
	// QueueOpen is True if the queue is not closed.
	QueueOpen QueueConditionType = "Open"
	// QueueWithinQuota is True while the pods of the queue request no more than its quota. A queue without a quota does
	// not have this condition.
	QueueWithinQuota QueueConditionType = "WithinQuota"
	// QueueShapeKnown is True while the queue's resourceShapeProfile exists and is valid. A queue without a profile
	// does not have this condition.
	QueueShapeKnown QueueConditionType = "ResourceShapeKnown"
)

// ReasonWithinQuota is the reason of the condition WithinQuota while it is True. While it is False, the reason is
// ReasonQuotaExceeded.
const ReasonWithinQuota = "WithinQuota"

// Reasons of the condition ResourceShapeKnown.
const (
	// ReasonShapeFound: status.resourceShape has the limits.
	ReasonShapeFound = "Found"
	// ReasonShapeNotFound: the ConfigMap does not exist or does not have the key.
	ReasonShapeNotFound = "NotFound"
	// ReasonShapeInvalid: the value of the key is invalid.
	ReasonShapeInvalid = "Invalid"
)

// QueueCondition describes one aspect of the state of a queue.
type QueueCondition struct {
	// Type names the aspect.
	Type QueueConditionType `json:"type"`
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
}

// QueueStatus is the observed state of a queue.
type QueueStatus struct {
	// Allocated is the sum, by resource, of the requests of the queue's pods that are bound to a node and have not
	// finished. Pods of other schedulers that name the queue count too.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
	// Conditions holds the latest observations of the queue's state.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []QueueCondition `json:"conditions,omitempty"`
	// ResourceShape holds the limits of the queue's resourceShapeProfile. It is unset if the queue has no profile, or
	// if the profile is missing or invalid.
	// +optional
	ResourceShape *ResourceShape `json:"resourceShape,omitempty"`
	// PodGroups counts the PodGroups of the queue.
	// +optional
	PodGroups QueuePodGroups `json:"podGroups,omitzero"`
	// Pods counts the pods of the queue by phase. Pods of other schedulers do not count.
	// +optional
	Pods QueuePods `json:"pods,omitzero"`
}

// ResourceShape limits the requests of each pod of a queue.
type ResourceShape struct {
	// Profile is the resourceShapeProfile with these limits.
	Profile string `json:"profile"`
	// Requests are the largest requests that a pod may have, by resource. A resource that is not listed has no limit.
	Requests corev1.ResourceList `json:"requests"`
}

// QueuePodGroups counts the PodGroups of a queue.
type QueuePodGroups struct {
	// Total is the number of PodGroups that name the queue.
	// +optional
	Total int32 `json:"total,omitempty"`
}

// QueuePods counts the pods of a queue by phase.
type QueuePods struct {
	// Pending is the number of pods in phase Pending.
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
