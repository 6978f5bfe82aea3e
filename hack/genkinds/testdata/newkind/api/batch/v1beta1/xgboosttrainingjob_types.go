package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// XGBoostTrainingJob trains with XGBoost. The first worker runs the tracker, and the variable DMLC_TRACKER_URI names it
// in every worker.
//
// The name of a pod is JOB-ROLE-RANK. It has at most 63 characters and no dot. On a live job, only the enabled
// switches, the fields of runPolicy except restartScope, and the priority can change.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;jobs,shortName=xtj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.scheduler.t9kScheduler.queue`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,priority=1,JSONPath=`.status.completionTime`
type XGBoostTrainingJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the job runs.
	Spec XGBoostTrainingJobSpec `json:"spec"`
	// Status is the observed state of the job.
	// +optional
	Status XGBoostTrainingJobStatus `json:"status,omitzero"`
}

// XGBoostTrainingJobList is a list of XGBoostTrainingJobs.
//
// +kubebuilder:object:root=true
type XGBoostTrainingJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XGBoostTrainingJob `json:"items"`
}

// XGBoostTrainingJobSpec says what an XGBoostTrainingJob runs. The master is rank 0 of the first role: the job succeeds
// when the master succeeds, and fails when the master fails for good.
type XGBoostTrainingJobSpec struct {
	// ReplicaSpecs lists the roles of the job.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []TrainingReplicaSpec `json:"replicaSpecs"`

	TrainingSpec `json:",inline"`
}

// XGBoostTrainingJobStatus is the observed state of an XGBoostTrainingJob.
type XGBoostTrainingJobStatus struct {
	TrainingStatus `json:",inline"`
}
