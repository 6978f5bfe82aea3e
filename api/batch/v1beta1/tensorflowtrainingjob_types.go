package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TensorFlowTrainingJob trains with TensorFlow: its replicas find each other by the variable TF_CONFIG.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;jobs,shortName=tftj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.backoffCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TensorFlowTrainingJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is to run.
	Spec TensorFlowTrainingJobSpec `json:"spec"`
	// Status says what has been seen of it.
	// +optional
	Status TensorFlowTrainingJobStatus `json:"status,omitzero"`
}

// TensorFlowTrainingJobList is a list of TensorFlowTrainingJobs.
//
// +kubebuilder:object:root=true
type TensorFlowTrainingJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TensorFlowTrainingJob `json:"items"`
}

// TensorFlowTrainingJobSpec says what a TensorFlowTrainingJob runs. Its master is the chief or, where there is none, rank 0 of
// the workers: the job succeeds when it succeeds and fails when it fails for good.
type TensorFlowTrainingJobSpec struct {
	// ReplicaSpecs lists the roles of the job: chief (at most one replica), worker, ps and evaluator (at most one).
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	ReplicaSpecs []TrainingReplicaSpec `json:"replicaSpecs"`

	TrainingSpec `json:",inline"`
}

// TensorFlowTrainingJobStatus is the observed state of a TensorFlowTrainingJob.
type TensorFlowTrainingJobStatus struct {
	TrainingStatus `json:",inline"`
}
