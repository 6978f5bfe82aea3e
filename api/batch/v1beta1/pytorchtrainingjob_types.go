package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PyTorchTrainingJob trains with PyTorch. The operator sets the environment variables by which torch.distributed finds
// the other replicas, or starts the training with torchrun. With torchrun, the number of replicas can change during the
// training.
//
// The name of a pod is JOB-ROLE-RANK. It must be a DNS label: at most 63 characters and no dot. On a live job, only the
// enabled switches of runMode, elastic.expectedReplicas, the fields of runPolicy except restartScope, and
// scheduler.t9kScheduler.priority can change.
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

// PyTorchTrainingJobSpec says what a PyTorchTrainingJob runs. The first replica of the first role with replicas is the
// job's master: the job succeeds when the master succeeds, and fails when the master fails for good. Without torchrun,
// the job also fails when another replica fails for good and the master does not end within a minute.
type PyTorchTrainingJobSpec struct {
	// ReplicaSpecs lists the roles of the job. The ranks of torch.distributed (RANK) count over all roles in this
	// order. The main container of a pod is the one named pytorch or else python, or else the first container. Its end
	// is the end of the replica. Roles cannot be added, removed or reordered on a live job.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []PyTorchReplicaSpec `json:"replicaSpecs"`
	// Elastic lets the number of replicas change while the job runs. It has no effect unless elastic and torchrunConfig
	// are both enabled.
	// +optional
	// +kubebuilder:default={}
	Elastic *ElasticConfig `json:"elastic,omitempty"`
	// TorchrunConfig starts the training with torchrun. It cannot change on a live job.
	// +optional
	TorchrunConfig *TorchrunConfig `json:"torchrunConfig,omitempty"`

	TrainingSpec `json:",inline"`
}

// PyTorchReplicaSpec describes the replicas of one role.
type PyTorchReplicaSpec struct {
	TrainingReplicaSpec `json:",inline"`

	// ScalingWeight is the role's share of the replicas of an elastic job, relative to the weights of the other roles.
	// Defaults to 1. Other jobs ignore it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ScalingWeight *int32 `json:"scalingWeight,omitempty"`
}

// ElasticConfig sets the bounds and the current number of replicas of an elastic job. It has no effect unless it and
// torchrun are enabled.
type ElasticConfig struct {
	// Enabled switches elastic training on. Defaults to false. It cannot change on a live job.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It has an effect only if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// MinReplicas is the smallest number of replicas with which the training runs. Required if elastic training is
	// enabled. It cannot change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the largest number of replicas. Required if elastic training is enabled. It cannot change on a
	// live job.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`
	// ExpectedReplicas is the wanted number of replicas, from minReplicas to maxReplicas. 0 means minReplicas. Users
	// and autoscalers change it to scale the job, also through the scale subresource. A change has no effect after a
	// replica has succeeded.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ExpectedReplicas *int32 `json:"expectedReplicas,omitempty"`
}

// TorchrunConfig makes each main container run torchrun with the options below, followed by the args of the container:
// the script and its arguments. The container's command is ignored.
type TorchrunConfig struct {
	// Enabled switches torchrun on. Defaults to false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It has an effect only if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// MaxRestarts is torchrun's option --max_restarts: the number of times that each torchrun restarts its processes
	// before it fails. Unset: torchrun's own default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRestarts *int32 `json:"maxRestarts,omitempty"`
	// ProcPerNode is torchrun's option --nproc_per_node: the number of processes in each replica, or auto, cpu or gpu.
	// Unset: torchrun's own default.
	// +optional
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,5}|auto|cpu|gpu)$`
	ProcPerNode string `json:"procPerNode,omitempty"`
	// RdzvBackend is torchrun's option --rdzv_backend: the protocol by which the replicas find each other. Defaults to
	// c10d.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RdzvBackend string `json:"rdzvBackend,omitempty"`
	// ExtraOptions lists further command-line options of torchrun. They come after the options above.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	ExtraOptions []string `json:"extraOptions,omitempty"`
}

// PyTorchTrainingJobStatus is the observed state of a PyTorchTrainingJob.
type PyTorchTrainingJobStatus struct {
	TrainingStatus `json:",inline"`
}
