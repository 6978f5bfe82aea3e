package v1beta1

import (
	corev1 "k8s.io/api/core/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

// TrainingReplicaSpec describes the replicas of one role of a training job.
type TrainingReplicaSpec struct {
	// Type is the role: a lower-case DNS label, unique in the job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Type string `json:"type"`
	// Replicas is the number of replicas. Defaults to 1. An elastic job shares its replicas among the roles by
	// scalingWeight and ignores this field.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// RestartPolicy says when a replica is restarted: OnFailure (the default), Always (also after success), Never, or
	// ExitCode, which restarts after the exit codes 130, 137, 138 and 143, because these mean a signal from outside.
	// runPolicy.backoffLimit bounds the restarts, and runPolicy.restartScope says whether the other replicas restart
	// too.
	// +optional
	RestartPolicy TrainingRestartPolicy `json:"restartPolicy,omitempty"`
	// Template describes the pods. Its restartPolicy is ignored: the controller restarts replicas by replacing their
	// pods.
	Template corev1.PodTemplateSpec `json:"template"`
}

// TrainingRestartPolicy is a restart policy of training jobs.
//
// +kubebuilder:validation:Enum=Always;OnFailure;Never;ExitCode
type TrainingRestartPolicy string

const (
	// TrainingRestartAlways restarts a replica whenever it ends.
	TrainingRestartAlways TrainingRestartPolicy = "Always"
	// TrainingRestartOnFailure restarts a replica when it fails.
	TrainingRestartOnFailure TrainingRestartPolicy = "OnFailure"
	// TrainingRestartNever never restarts a replica.
	TrainingRestartNever TrainingRestartPolicy = "Never"
	// TrainingRestartExitCode restarts a replica whose main container ended with exit code 130, 137, 138 or 143.
	TrainingRestartExitCode TrainingRestartPolicy = "ExitCode"
)

// RunPolicy bounds a training job and says what happens after its end. All fields except restartScope may change on a
// live job.
type RunPolicy struct {
	// ActiveDeadlineSeconds fails the job when it has been active for this many seconds, counted from status.startTime.
	// Its running pods are stopped, whatever cleanUpPolicy says. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int32 `json:"activeDeadlineSeconds,omitempty"`
	// BackoffLimit is the number of retries before the job fails. Replicas that fail together cost one retry: a replica
	// that fails before all run again costs no further one. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// RestartScope says which replicas restart when one fails. Replica (the default): only that one. Job: all that have
	// not ended for good, except those of roles whose restartPolicy is Never. Use Job for replicas that form one
	// process group, which a single replica cannot rejoin. It cannot change on a live job.
	// +optional
	RestartScope RestartScope `json:"restartScope,omitempty"`
	// CleanUpPolicy says which pods are deleted when the job has finished: None (the default), Unfinished (those that
	// are pending, running or unknown) or All.
	// +optional
	CleanUpPolicy CleanUpPolicy `json:"cleanUpPolicy,omitempty"`
	// TTLSecondsAfterFinished deletes the job itself this many seconds after it has finished. Unset: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// TrainingSpec holds what training jobs of all kinds have in common, apart from their roles.
type TrainingSpec struct {
	// RunMode chooses between running at once (the default), debugging and pausing.
	// +optional
	RunMode *RunMode `json:"runMode,omitempty"`
	// RunPolicy bounds the job and says what happens after its end.
	// +optional
	RunPolicy *RunPolicy `json:"runPolicy,omitempty"`
	// TensorBoardSpec asks for a TensorBoard with the job's name. It shows what the job logs and is deleted with the
	// job. It cannot change on a live job.
	// +optional
	TensorBoardSpec *tensorboard.TensorBoardSpec `json:"tensorboardSpec,omitempty"`
	// Scheduler chooses the scheduler. Unset: the cluster's default scheduler.
	// +optional
	Scheduler *SchedulePolicy `json:"scheduler,omitempty"`
}

// TrainingStatus is the observed state of a training job.
type TrainingStatus struct {
	JobStatus `json:",inline"`
	// TensorBoard is the state of the job's TensorBoard. It has no influence on the training.
	// +optional
	TensorBoard *DependentStatus `json:"tensorboard,omitempty"`
}

// DependentStatus is the state of an object that a job asks for and does not depend on.
type DependentStatus struct {
	// Dependent is the object; unset while there is none.
	// +optional
	Dependent *corev1.ObjectReference `json:"dependent,omitempty"`
	// Ready is true while the object serves.
	Ready bool `json:"ready"`
	// Type is Normal, or Warning if a problem keeps the object from serving.
	// +kubebuilder:validation:Enum=Normal;Warning
	Type string `json:"type"`
	// Reason is a CamelCase word for programs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// Note is a sentence for people.
	// +optional
	Note string `json:"note,omitempty"`
	// Action is what the controller does about it, as a CamelCase word.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Action string `json:"action,omitempty"`
}
