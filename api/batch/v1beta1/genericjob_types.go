package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GenericJob runs a set of replicas, in one or several roles, as one job.
//
// +kubebuilder:object:root=true
// +genclient
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;jobs,shortName=gj
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.aggregate.running`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.replicas`,description="Replicas that the job wants"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.backoffCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.scheduler.t9kScheduler.queue`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Finished",type=date,priority=1,JSONPath=`.status.completionTime`
type GenericJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is to run.
	Spec GenericJobSpec `json:"spec"`
	// Status says what has been seen of it.
	// +optional
	Status GenericJobStatus `json:"status,omitzero"`
}

// GenericJobList is a list of GenericJobs.
//
// +kubebuilder:object:root=true
type GenericJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GenericJob `json:"items"`
}

// FinishRule maps a role to ranks. An entry is a rank (3 or "3") or an inclusive range ("0-3"); an empty list stands for
// every replica of the role.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=64
type FinishRule map[string]RankList

// RankList lists ranks: integers, strings that hold one, or inclusive ranges such as "0-3".
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=10000
type RankList []intstr.IntOrString

// GenericJobSpec says what a GenericJob runs.
type GenericJobSpec struct {
	// SuccessRules say when the job has succeeded: when all replicas that one of the rules names have succeeded. Without
	// rules the job succeeds when every replica has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SuccessRules []FinishRule `json:"successRules,omitempty"`
	// FailureRules say when the job has failed: when all replicas that one of the rules names have failed for good, that
	// is, with no restart left or allowed. Without rules the job fails when any replica has. When a failure rule and a
	// success rule come to hold together, the job has failed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	FailureRules []FinishRule `json:"failureRules,omitempty"`
	// Service gives the replicas names of their own in DNS and a headless Service with these ports. Unset: none.
	// +optional
	Service *ServiceOption `json:"service,omitempty"`
	// RunMode chooses between running at once (the default), debugging and pausing.
	// +optional
	RunMode *RunMode `json:"runMode,omitempty"`
	// CleanUpPolicy says which pods are deleted when the job has finished: None (the default), Unfinished (those that are
	// pending, running or unknown) or All.
	// +optional
	CleanUpPolicy CleanUpPolicy `json:"cleanUpPolicy,omitempty"`
	// TTLSecondsAfterFinished deletes the job itself this many seconds after it has finished. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// Scheduler chooses the scheduler. Unset: the cluster's default scheduler.
	// +optional
	Scheduler *SchedulePolicy `json:"scheduler,omitempty"`
	// ReplicaSpecs lists the roles of the job.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ReplicaSpecs []ReplicaSpec `json:"replicaSpecs"`
}

// ReplicaSpec describes the replicas of one role.
type ReplicaSpec struct {
	// Type is the role: a lower-case DNS label, unique in the job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Type string `json:"type"`
	// Replicas is the number of replicas. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// RestartPolicy says when a replica is restarted.
	// +optional
	RestartPolicy *RestartPolicy `json:"restartPolicy,omitempty"`
	// Template describes the pods. Its restartPolicy is ignored: the controller restarts replicas by replacing their pods.
	Template corev1.PodTemplateSpec `json:"template"`
}

// RestartPolicy says when the replicas of a role are restarted.
type RestartPolicy struct {
	// Policy is OnFailure (the default), Always (successes too) or Never.
	// +optional
	Policy RestartPolicyType `json:"policy,omitempty"`
	// Limit is the number of restarts of each replica. It may change on a live job. Unset: 0 for OnFailure, no bound for
	// Always.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Limit *int32 `json:"limit,omitempty"`
}

// RestartPolicyType is a restart policy of GenericJob.
//
// +kubebuilder:validation:Enum=Always;OnFailure;Never
type RestartPolicyType string

const (
	// RestartAlways restarts a replica whenever it ends.
	RestartAlways RestartPolicyType = "Always"
	// RestartOnFailure restarts a replica when it fails.
	RestartOnFailure RestartPolicyType = "OnFailure"
	// RestartNever never restarts a replica.
	RestartNever RestartPolicyType = "Never"
)

// GenericJobStatus is the observed state of a GenericJob.
type GenericJobStatus struct {
	JobStatus `json:",inline"`
}
