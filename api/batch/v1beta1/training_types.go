package v1beta1

import (
	corev1 "k8s.io/api/core/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// TrainingReplicaSpec describes the replicas of one role of a training job.
type TrainingReplicaSpec struct {
	// Type is the name of the role: a lower-case DNS label, unique in the job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Type string `json:"type"`
	// Replicas is the number of replicas of the role. Defaults to 1. An elastic job ignores this field, because it
	// divides its replicas among the roles by scalingWeight. It cannot change on a live job.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// RestartPolicy says when a replica is restarted: OnFailure (the default), Always (also after success), Never, or
	// ExitCode. ExitCode restarts after the exit codes 130 (SIGINT), 137 (SIGKILL), 138 (SIGUSR1) and 143 (SIGTERM).
	// runPolicy.backoffLimit limits the restarts, and runPolicy.restartScope says whether the other replicas restart
	// too. It cannot change on a live job.
	// +optional
	RestartPolicy TrainingRestartPolicy `json:"restartPolicy,omitempty"`
	// Template describes the pods. Its restartPolicy is ignored: the controller restarts replicas by replacing their
	// pods.
	Template corev1.PodTemplateSpec `json:"template"`
}

// TrainingRestartPolicy says after which ends a replica of a training job restarts.
//
// +kubebuilder:validation:Enum=Always;OnFailure;Never;ExitCode
type TrainingRestartPolicy string

const (
	// TrainingRestartAlways restarts a replica whenever it ends.
	TrainingRestartAlways TrainingRestartPolicy = "Always"
	// TrainingRestartOnFailure restarts a replica when it fails. It is the default.
	TrainingRestartOnFailure TrainingRestartPolicy = "OnFailure"
	// TrainingRestartNever never restarts a replica.
	TrainingRestartNever TrainingRestartPolicy = "Never"
	// TrainingRestartExitCode restarts a replica whose main container ended with exit code 130, 137, 138 or 143.
	TrainingRestartExitCode TrainingRestartPolicy = "ExitCode"
)

// RunPolicy limits the time and the restarts of a training job, and says what happens after its end. All fields except
// restartScope may change on a live job.
type RunPolicy struct {
	// ActiveDeadlineSeconds is the longest time in seconds for which the job may be active, counted from
	// status.startTime. The job then fails, and its pods that have not ended are deleted, whatever cleanUpPolicy says.
	// Unset: no deadline.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`
	// BackoffLimit is the largest number of retries. A failure that needs one more retry fails the job. Replicas that
	// fail together cost one retry: if further replicas fail before all run again, they cost nothing, unless a replica
	// fails for a second time. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// RestartScope says which replicas restart when one fails. Replica (the default): only this replica. Job: all
	// replicas, except replicas that have ended for good and replicas of roles with the restartPolicy Never. Use Job if
	// the replicas form a process group that a single replica cannot join again. It cannot change on a live job.
	// +optional
	RestartScope RestartScope `json:"restartScope,omitempty"`
	// CleanUpPolicy says which pods are deleted when the job has finished: None (the default), Unfinished (the pods
	// that have not ended) or All.
	// +optional
	CleanUpPolicy CleanUpPolicy `json:"cleanUpPolicy,omitempty"`
	// TTLSecondsAfterFinished is the time in seconds from the end of the job to its deletion, with its pods. Unset: the
	// job is never deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// TrainingSpec holds the fields that training jobs of all kinds have in common, except for the roles.
type TrainingSpec struct {
	// RunMode pauses the job or runs it in debug mode. Unset: neither.
	// +optional
	RunMode *RunMode `json:"runMode,omitempty"`
	// RunPolicy limits the time and the restarts of the job, and says what happens after its end. Unset: the defaults
	// of its fields.
	// +optional
	RunPolicy *RunPolicy `json:"runPolicy,omitempty"`
	// TensorBoardSpec makes the operator create a TensorBoard with the job's name, which shows the logs that the spec
	// selects. The TensorBoard is deleted with the job. Unset: the job has no TensorBoard. It cannot change on a live
	// job.
	// +optional
	TensorBoardSpec *tensorboard.TensorBoardSpec `json:"tensorboardSpec,omitempty"`
	// Scheduler chooses the scheduler of the pods. Unset: the schedulerName of the template or, if that is unset too,
	// the cluster's default scheduler.
	// +optional
	Scheduler *SchedulePolicy `json:"scheduler,omitempty"`
}

// TrainingStatus is the observed state of a training job.
type TrainingStatus struct {
	JobStatus `json:",inline"`
	// TensorBoard is the state of the job's TensorBoard; unset if the job has none. It does not affect the training.
	// +optional
	TensorBoard *DependentStatus `json:"tensorboard,omitempty"`
}

// DependentStatus is the state of an object that the operator creates for a job and on which the job does not depend.
type DependentStatus struct {
	// Dependent identifies the object; unset while there is none.
	// +optional
	Dependent *corev1.ObjectReference `json:"dependent,omitempty"`
	// Ready is true while the object is ready. A TensorBoard is ready while it answers requests.
	Ready bool `json:"ready"`
	// Type is Normal, or Warning if a problem keeps the object from being ready.
	// +kubebuilder:validation:Enum=Normal;Warning
	Type string `json:"type"`
	// Reason is the reason of the object's state, as a CamelCase word for programs. For a TensorBoard, it is one of the
	// reasons of the condition Ready.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// Note is a message for people about the object's state.
	// +optional
	Note string `json:"note,omitempty"`
	// Action says what the operator does about the object: None, Wait or Retry.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Action string `json:"action,omitempty"`
}
