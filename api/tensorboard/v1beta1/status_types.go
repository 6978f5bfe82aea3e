package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is the state of a TensorBoard in one word. The conditions hold the details.
type Phase string

const (
	// Pending: the TensorBoard is starting, or waits for room on a node or for an object that it needs.
	Pending Phase = "Pending"
	// Running: the TensorBoard answers requests.
	Running Phase = "Running"
	// Suspended: spec.suspend is true. The pod is gone or terminating.
	Suspended Phase = "Suspended"
	// Failed: the TensorBoard cannot run. The condition Ready has the reason.
	Failed Phase = "Failed"
)

// ConditionType names one aspect of a TensorBoard's state.
//
// +kubebuilder:validation:Enum=Ready;Idle
type ConditionType string

const (
	// Ready is True while the TensorBoard answers requests.
	Ready ConditionType = "Ready"
	// Idle is True when the TensorBoard has had no request for the time that the operator's setting
	// tensorBoards.idleAfter sets. It is Unknown until the pod has reported its requests.
	Idle ConditionType = "Idle"
)

// Reasons of conditions.
const (
	// ReasonRunning (Ready): the TensorBoard answers requests.
	ReasonRunning = "Running"
	// ReasonStarting (Ready): the pod is starting.
	ReasonStarting = "Starting"
	// ReasonSuspended (Ready, Idle): spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSpec (Ready): the operator cannot carry out the spec. The message names the field and the error.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNameTaken (Ready): an object with a name that the TensorBoard needs belongs to another owner.
	ReasonNameTaken = "NameTaken"
	// ReasonCreateRefused (Ready): the API server refuses an object of the TensorBoard. The message is the API
	// server's.
	ReasonCreateRefused = "CreateRefused"
	// ReasonUnschedulable (Ready): the scheduler has not placed the pod. The message is the scheduler's.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNotStarted (Ready): a container cannot start. The message is the kubelet's.
	ReasonNotStarted = "ContainersNotStarted"
	// ReasonFailing (Ready): a container has ended, although it should run. The message has its exit code and its last
	// output.
	ReasonFailing = "ContainersFail"

	// ReasonActive (Idle): the TensorBoard had a request, or was started, within the time tensorBoards.idleAfter.
	ReasonActive = "Active"
	// ReasonNoRequests (Idle): the TensorBoard has had no request for the time tensorBoards.idleAfter.
	ReasonNoRequests = "NoRequests"
	// ReasonNotRunning (Idle): the TensorBoard has not run yet, or not since it was resumed.
	ReasonNotRunning = "NotRunning"
	// ReasonProbeFailed (Idle): the pod does not report the time of its last request.
	ReasonProbeFailed = "ProbeFailed"
)

// TensorBoardStatus is the observed state of a TensorBoard.
type TensorBoardStatus struct {
	// Phase is Pending, Running, Suspended or Failed.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Pod is the pod that runs the TensorBoard; unset while there is none.
	// +optional
	Pod *PodStatus `json:"pod,omitempty"`
	// Conditions holds the latest observations of the TensorBoard's state: Ready and, unless the operator's setting
	// tensorBoards.idleAfter is 0s, Idle.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// URL is the address of the TensorBoard within the cluster. It stays the same when the TensorBoard is suspended and
	// resumed.
	// +optional
	URL string `json:"url,omitempty"`
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// PodStatus is the pod that runs a TensorBoard, with its phase.
type PodStatus struct {
	// Reference identifies the pod.
	Reference PodReference `json:"reference"`
	// Phase of the pod.
	// +optional
	Phase corev1.PodPhase `json:"phase,omitempty"`
}

// PodReference identifies a pod of the same namespace.
type PodReference struct {
	// Name of the pod.
	Name string `json:"name"`
	// UID of the pod.
	UID types.UID `json:"uid"`
}

// Condition describes one aspect of the state of a TensorBoard.
type Condition struct {
	// Type names the aspect.
	Type ConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// Reason is the reason of the status, as a CamelCase word for programs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// Message is a message for people about the status.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// LastProbeTime is when the pod last reported its requests to the operator. Only the condition Idle has it.
	// +optional
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`
}
