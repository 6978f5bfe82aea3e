package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is the state of a TensorBoard in one word. The conditions hold the details.
type Phase string

const (
	// Pending: the TensorBoard is starting, or waits for an object that it needs.
	Pending Phase = "Pending"
	// Running: it answers requests.
	Running Phase = "Running"
	// Suspended: spec.suspend is set, and nothing runs.
	Suspended Phase = "Suspended"
	// Failed: it cannot run; the condition Ready says why.
	Failed Phase = "Failed"
)

// ConditionType names one aspect of a TensorBoard's state.
//
// +kubebuilder:validation:Enum=Ready;Idle
type ConditionType string

const (
	// Ready is True while the TensorBoard answers requests.
	Ready ConditionType = "Ready"
	// Idle is True when the TensorBoard has had no request for a while. It is Unknown if the pod does not report its
	// requests.
	Idle ConditionType = "Idle"
)

// Reasons of conditions.
const (
	// ReasonRunning (Ready): it answers requests.
	ReasonRunning = "Running"
	// ReasonStarting (Ready): its pod is being started.
	ReasonStarting = "Starting"
	// ReasonSuspended (Ready, Idle): spec.suspend is set.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSpec (Ready): the spec cannot be carried out; the message says where and why.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNameTaken (Ready): an object with a name that the TensorBoard needs belongs to another owner.
	ReasonNameTaken = "NameTaken"
	// ReasonCreateRefused (Ready): the API server refuses an object of the TensorBoard; the message is the API
	// server's.
	ReasonCreateRefused = "CreateRefused"
	// ReasonUnschedulable (Ready): the scheduler does not place the pod; the message is the scheduler's.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNotStarted (Ready): a container cannot start; the message is the kubelet's.
	ReasonNotStarted = "ContainersNotStarted"
	// ReasonFailing (Ready): a container ends again and again; the message says how.
	ReasonFailing = "ContainersFail"

	// ReasonActive (Idle): it had a request recently.
	ReasonActive = "Active"
	// ReasonNoRequests (Idle): it had no request for a while.
	ReasonNoRequests = "NoRequests"
	// ReasonNotRunning (Idle): it does not run.
	ReasonNotRunning = "NotRunning"
	// ReasonProbeFailed (Idle): the pod does not report the time of its last request.
	ReasonProbeFailed = "ProbeFailed"
)

// TensorBoardStatus is the observed state of a TensorBoard.
type TensorBoardStatus struct {
	// Phase is Pending, Running, Suspended or Failed.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Pod is the pod that runs it; unset while there is none.
	// +optional
	Pod *PodStatus `json:"pod,omitempty"`
	// Conditions holds the latest observations.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// URL is its address within the cluster. It stays the same when the TensorBoard is suspended and resumed.
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
	// Reason is a CamelCase word for programs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
	// LastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// LastProbeTime is when the operator last queried the pod. Only the condition Idle has it.
	// +optional
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`
}
