package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PyTorchTrainingJob trains with PyTorch: its replicas find each other by the variables of torch.distributed, or
// torchrun starts them. With torchrun, their number may change while they train.
//
// The name of a pod is JOB-ROLE-RANK. It has at most 63 characters and no dot. On a live job, only the enabled switches
// of runMode, elastic.expectedReplicas, the fields of runPolicy except restartScope, and the priority can change.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.elastic.expectedReplicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=all;jobs,shortName=ptj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.scheduler.t9kScheduler.queue`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,priority=1,JSONPath=`.status.completionTime`
type PyTorchTrainingJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the job runs.
	Spec PyTorchTrainingJobSpec `json:"spec"`
	// Status is the observed state of the job.
	// +optional
	Status PyTorchTrainingJobStatus `json:"status,omitzero"`
}

// PyTorchTrainingJobList is a list of PyTorchTrainingJobs.
//
// +kubebuilder:object:root=true
type PyTorchTrainingJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PyTorchTrainingJob `json:"items"`
}

// PyTorchTrainingJobSpec says what a PyTorchTrainingJob runs. Rank 0 over all roles, in their order, is the job's
// master: the job succeeds when the master succeeds, and fails when the master fails for good.
type PyTorchTrainingJobSpec struct {
	// ReplicaSpecs lists the roles of the job. Ranks count over all of them in this order.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []PyTorchReplicaSpec `json:"replicaSpecs"`
	// Elastic lets the number of replicas change while the job runs. It needs torchrun.
	// +optional
	// +kubebuilder:default={}
	Elastic *ElasticConfig `json:"elastic,omitempty"`
	// TorchrunConfig starts the training with torchrun.
	// +optional
	TorchrunConfig *TorchrunConfig `json:"torchrunConfig,omitempty"`

	TrainingSpec `json:",inline"`
}

// PyTorchReplicaSpec describes the replicas of one role.
type PyTorchReplicaSpec struct {
	TrainingReplicaSpec `json:",inline"`

	// ScalingWeight is the role's share of the replicas of an elastic job, relative to the weights of the other roles.
	// Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ScalingWeight *int32 `json:"scalingWeight,omitempty"`
}

// ElasticConfig lets the number of replicas change while the job runs. It has no effect without torchrun, or if it is
// not enabled.
type ElasticConfig struct {
	// Enabled switches elastic training on.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It counts if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// MinReplicas is the smallest number of replicas with which training continues. It cannot change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the largest number of replicas. It cannot change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// ExpectedReplicas is the number of replicas wanted now, from minReplicas to maxReplicas. People and autoscalers
	// change it to scale the job, also through the scale subresource. 0 means minReplicas.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ExpectedReplicas *int32 `json:"expectedReplicas,omitempty"`
}

// TorchrunConfig makes each main container run torchrun with the options below, followed by the args of the container:
// the script and its arguments. The container's command is ignored.
type TorchrunConfig struct {
	// Enabled switches torchrun on.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It counts if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// MaxRestarts is torchrun's --max_restarts: how often each torchrun starts its processes again before it fails.
	// Unset: torchrun's own default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRestarts *int32 `json:"maxRestarts,omitempty"`
	// ProcPerNode is torchrun's --nproc_per_node: the number of processes in each replica, or auto, cpu or gpu. Unset:
	// torchrun's own default.
	// +optional
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,5}|auto|cpu|gpu)$`
	ProcPerNode string `json:"procPerNode,omitempty"`
	// RdzvBackend is torchrun's --rdzv_backend, by which replicas find each other. Defaults to c10d.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RdzvBackend string `json:"rdzvBackend,omitempty"`
	// ExtraOptions lists further options of torchrun.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	ExtraOptions []string `json:"extraOptions,omitempty"`
}

// PyTorchTrainingJobStatus is the observed state of a PyTorchTrainingJob.
type PyTorchTrainingJobStatus struct {
	TrainingStatus `json:",inline"`
}
