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
	// RestartJob restarts all replicas of the job, except replicas that have ended for good and replicas whose restart
	// policy never restarts them.
	RestartJob RestartScope = "Job"
)

// RunMode pauses the job or runs it in debug mode. If both modes are enabled, the job is paused.
type RunMode struct {
	// Debug runs the job in debug mode: its pods run an idle command, so that people can work in them.
	// +optional
	Debug *DebugMode `json:"debug,omitempty"`
	// Pause pauses the job: its pods are deleted, and its restart counts and results are kept.
	// +optional
	Pause *PauseMode `json:"pause,omitempty"`
}

// DebugMode says whether a job is in debug mode, and which command its pods then run.
type DebugMode struct {
	// Enabled switches debug mode on. Defaults to false. A change on a live job replaces its pods.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It has an effect only if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// ReplicaSpecs lists settings for roles in debug mode, with at most one entry for each role. The pods of other
	// roles run ["sleep", "inf"]. It cannot change on a live job.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	ReplicaSpecs []ReplicaDebugSet `json:"replicaSpecs,omitempty"`
}

// ReplicaDebugSet holds the settings of one role for debug mode.
type ReplicaDebugSet struct {
	// Type is the role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// SkipInitContainer leaves the init containers out of the pods. Defaults to false.
	// +optional
	SkipInitContainer bool `json:"skipInitContainer,omitempty"`
	// Command replaces the command and the args of each container, except init containers. The probes of these
	// containers are left out. Variables in the command are replaced as in the template. Unset or empty: ["sleep",
	// "inf"].
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
}

// PauseMode says whether a job is paused, and how its pods start when it resumes.
type PauseMode struct {
	// Enabled pauses the job. Defaults to false. It may change on a live job: false resumes the job.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Enable is the older spelling of enabled. It has an effect only if enabled is unset.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// ResumeSpecs lists settings for roles after a pause, with at most one entry for each role. The replicas of other
	// roles start as the template says. It cannot change on a live job.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	ResumeSpecs []ResumeSpec `json:"resumeSpecs,omitempty"`
}

// ResumeSpec holds the settings with which the replicas of one role start after a pause. In a GenericJob, the main
// container of a pod is its first container.
type ResumeSpec struct {
	// Type is the role.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// SkipInitContainer leaves the init containers out of the pods. Defaults to false.
	// +optional
	SkipInitContainer bool `json:"skipInitContainer,omitempty"`
	// Command replaces the command of the main container. Variables in it are replaced as in the template. Unset or
	// empty: the template's command. It has no effect in a job that uses torchrun.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Args replaces the arguments of the main container. Variables in it are replaced as in the template. Unset or
	// empty: the template's args.
	// +optional
	// +listType=atomic
	Args []string `json:"args,omitempty"`
}

// SchedulePolicy chooses the scheduler of a job's pods. Unset: the schedulerName of the template or, if that is unset
// too, the cluster's default scheduler.
type SchedulePolicy struct {
	// T9kScheduler makes the t9k-scheduler schedule the pods of the job, all together or not at all. For an elastic
	// job, this holds for minReplicas pods. It cannot be added or removed on a live job.
	// +optional
	T9kScheduler *T9kScheduler `json:"t9kScheduler,omitempty"`
}

// T9kScheduler says in which queue and with which priority the t9k-scheduler schedules the job.
type T9kScheduler struct {
	// Queue is the name of the queue. It cannot change on a live job.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Queue string `json:"queue"`
	// Priority is the priority of the job within its queue, from 0 to 100. The scheduler tries jobs with a higher
	// priority first. Defaults to 0. The queue may allow a smaller range (groupPriority). It may change on a live job.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Priority *int32 `json:"priority,omitempty"`
}

// ServiceOption describes the headless Service through which the replicas of a job resolve each other's names.
type ServiceOption struct {
	// Ports of the Service, with numbers from 1 to 65535. If there are several ports, each needs a name. Commands, args
	// and environment variables can refer to a port as $(service.port[NAME]).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(p, p.port > 0 && p.port < 65536)",optionalOldSelf=true,message="a port is a number from 1 to 65535: choose one of these"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self) < 2 || self.all(p, has(p.name) && size(p.name) > 0)",optionalOldSelf=true,message="with more than one port, each has a name: give it one, such as http"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.all(p, !has(p.nodePort))",optionalOldSelf=true,message="the job's Service is headless and has no ports on nodes: leave nodePort out"
	Ports []corev1.ServicePort `json:"ports,omitempty"`
}
