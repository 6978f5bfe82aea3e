package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
)

// CleanUpPolicy says which pods are deleted when the job has finished.
//
// +kubebuilder:validation:Enum=None;Unfinished;All
type CleanUpPolicy string

const (
	// CleanUpNone keeps every pod. It is the default.
	CleanUpNone CleanUpPolicy = "None"
	// CleanUpUnfinished deletes the pods that have not finished: pending, running or unknown ones.
	CleanUpUnfinished CleanUpPolicy = "Unfinished"
	// CleanUpAll deletes every pod.
	CleanUpAll CleanUpPolicy = "All"
)

// RestartScope says which replicas restart when one fails.
//
// +kubebuilder:validation:Enum=Replica;Job
type RestartScope string

const (
	// RestartReplica restarts the replica that failed. It is the default.
	RestartReplica RestartScope = "Replica"
	// RestartJob restarts all replicas of the job that have not ended for good.
	RestartJob RestartScope = "Job"
)

// RunMode chooses between running at once (the default), debugging and pausing. If both modes are enabled, the job is
// paused.
type RunMode struct {
	// Debug starts the pods with an idle command, so that people can inspect them.
	// +optional
	Debug *DebugMode `json:"debug,omitempty"`
	// Pause ends the pods and keeps the job.
	// +optional
	Pause *PauseMode `json:"pause,omitempty"`
}

// DebugMode says whether and how a job starts in debug mode.
type DebugMode struct {
	// Enabled switches debug mode on. It may change at any time.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It counts if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// ReplicaSpecs says how the replicas of a role start in debug mode.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []ReplicaDebugSet `json:"replicaSpecs,omitempty"`
}

// ReplicaDebugSet says how the replicas of one role start in debug mode.
type ReplicaDebugSet struct {
	// Type is the role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// SkipInitContainer omits the init containers.
	// +optional
	SkipInitContainer bool `json:"skipInitContainer,omitempty"`
	// Command replaces the command of the role's containers; their args are dropped. Variables in it are replaced as in
	// the template. Unset or empty: ["sleep", "inf"].
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
}

// PauseMode says whether a job is paused and how it resumes.
type PauseMode struct {
	// Enabled pauses the job. It may change at any time.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It counts if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// ResumeSpecs says how the replicas of a role start when the job resumes. It cannot change on a live job.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	ResumeSpecs []ResumeSpec `json:"resumeSpecs,omitempty"`
}

// ResumeSpec says how the replicas of one role start when the job resumes from a pause.
type ResumeSpec struct {
	// Type is the role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// SkipInitContainer omits the init containers.
	// +optional
	SkipInitContainer bool `json:"skipInitContainer,omitempty"`
	// Command replaces the command of the main container. Variables in it are replaced as in the template. Unset or
	// empty: the template's.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args replaces the arguments of the main container. Variables in it are replaced as in the template. Unset or
	// empty: the template's.
	// +optional
	// +listType=atomic
	Args []string `json:"args,omitempty"`
}

// SchedulePolicy chooses the scheduler. Unset: the cluster's default scheduler.
type SchedulePolicy struct {
	// T9kScheduler hands the job to the t9k-scheduler, which starts its pods all together or not at all.
	// +optional
	T9kScheduler *T9kScheduler `json:"t9kScheduler,omitempty"`
}

// T9kScheduler says in which queue and with which priority the t9k-scheduler schedules the job.
type T9kScheduler struct {
	// Queue is the name of the queue.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Queue string `json:"queue"`
	// Priority orders the groups of one queue, 0 to 100, the highest first. Defaults to 0. It may change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Priority *int32 `json:"priority,omitempty"`
}

// ServiceOption describes the headless Service through which replicas find each other.
type ServiceOption struct {
	// Ports of the Service. Their names can be used as $(service.port[NAME]).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(p, p.port > 0 && p.port < 65536)",optionalOldSelf=true,message="a port is a number from 1 to 65535: choose one of these"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self) < 2 || self.all(p, has(p.name) && size(p.name) > 0)",optionalOldSelf=true,message="with more than one port, each has a name: give it one, such as http"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(p, !has(p.nodePort))",optionalOldSelf=true,message="the job's Service is headless and has no ports on nodes: leave nodePort out"
	Ports []corev1.ServicePort `json:"ports,omitempty"`
}
