package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TensorFlowTrainingJob trains with TensorFlow. The operator sets the environment variable TF_CONFIG, by which the
// replicas find each other.
//
// The name of a pod is JOB-ROLE-RANK. It must be a DNS label: at most 63 characters and no dot. On a live job, only the
// enabled switches of runMode, the fields of runPolicy except restartScope, and scheduler.t9kScheduler.priority can
// change.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;jobs,shortName=tftj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.scheduler.t9kScheduler.queue`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,priority=1,JSONPath=`.status.completionTime`
type TensorFlowTrainingJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the job runs.
	Spec TensorFlowTrainingJobSpec `json:"spec"`
	// Status is the observed state of the job.
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

// TensorFlowTrainingJobSpec says what a TensorFlowTrainingJob runs. Its master is the chief or, without a chief, rank 0
// of the workers: the job succeeds when the master succeeds, and fails when the master fails for good.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.replicaSpecs.all(s, s.type in ['chief', 'worker', 'ps', 'evaluator'])",optionalOldSelf=true,fieldPath=".replicaSpecs",message="TensorFlow does not know a role of the job: use chief, worker, ps and evaluator",messageExpression="'TensorFlow does not know the roles %s: use chief, worker, ps and evaluator'.format([self.replicaSpecs.filter(s, !(s.type in ['chief', 'worker', 'ps', 'evaluator'])).map(s, s.type)])"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.replicaSpecs.all(s, !(s.type in ['chief', 'evaluator']) || s.replicas <= 1)",optionalOldSelf=true,fieldPath=".replicaSpecs",message="a job has one chief and one evaluator at most: ask for 1"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.replicaSpecs.exists(s, s.type in ['chief', 'worker'] && s.replicas > 0)",optionalOldSelf=true,fieldPath=".replicaSpecs",message="a job of TensorFlow has a chief or workers, whose first one decides its end: add a role chief or worker"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.replicaSpecs.all(s, s.template.spec.containers.exists(c, c.name == 'tensorflow'))",optionalOldSelf=true,fieldPath=".replicaSpecs",message="in each role one container is the main one: name it \"tensorflow\""
type TensorFlowTrainingJobSpec struct {
	// ReplicaSpecs lists the roles of the job: chief (at most one replica), worker, ps and evaluator (at most one
	// replica). The job needs a chief or workers. In each role, the main container must be named tensorflow. Its end is
	// the end of the replica. Roles cannot be added, removed or reordered on a live job.
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
