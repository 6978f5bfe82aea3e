package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobPhase is the state of a job in one word. The conditions hold the details.
type JobPhase string

const (
	// JobPending: the job waits for replicas, because not all replicas have run at the same time yet, or because none
	// runs any more.
	JobPending JobPhase = "Pending"
	// JobRunning: every replica that the job waits for runs. The job keeps this phase while some replicas restart and
	// others run; the condition Running is then False.
	JobRunning JobPhase = "Running"
	// JobPaused: the job is paused. Its pods are gone or terminating.
	JobPaused JobPhase = "Paused"
	// JobResuming: the job was resumed after a pause and waits for replicas.
	JobResuming JobPhase = "Resuming"
	// JobSucceeded: the job has succeeded. This phase is final.
	JobSucceeded JobPhase = "Succeeded"
	// JobFailed: the job has failed. The condition Failed has the reason. This phase is final.
	JobFailed JobPhase = "Failed"
	// JobUnknown: the state of a replica cannot be obtained.
	JobUnknown JobPhase = "Unknown"
)

// JobConditionType names one aspect of a job's state.
//
// +kubebuilder:validation:Enum=Initialized;Running;ReplicaFailure;Completed;Failed;Paused
type JobConditionType string

const (
	// JobInitialized is True once the controller has accepted the job.
	JobInitialized JobConditionType = "Initialized"
	// JobRunningCondition is True while every replica that the job waits for runs.
	JobRunningCondition JobConditionType = "Running"
	// JobReplicaFailure is True if a replica has failed for good.
	JobReplicaFailure JobConditionType = "ReplicaFailure"
	// JobCompleted is True when the job has succeeded.
	JobCompleted JobConditionType = "Completed"
	// JobFailedCondition is True when the job has failed.
	JobFailedCondition JobConditionType = "Failed"
	// JobPausedCondition is True while the job is paused.
	JobPausedCondition JobConditionType = "Paused"
)

// JobCondition describes one aspect of the state of a job.
type JobCondition struct {
	// Type names the aspect.
	Type JobConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is the reason of the status, as a CamelCase word for programs.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// Message is a message for people about the status.
	// +optional
	Message string `json:"message,omitempty"`
}

// ReplicaPhase is the state of a replica in one word.
type ReplicaPhase string

const (
	// ReplicaCreating: the pod is being created or is not bound to a node yet.
	ReplicaCreating ReplicaPhase = "Creating"
	// ReplicaPending: the pod is bound to a node, and a container has not started yet. A replica of a paused or
	// finished job also has this phase if it never had a pod.
	ReplicaPending ReplicaPhase = "Pending"
	// ReplicaRunning: the pod's containers have started.
	ReplicaRunning ReplicaPhase = "Running"
	// ReplicaSucceeded: every container ended with exit code 0; in a training job, the main container did.
	ReplicaSucceeded ReplicaPhase = "Succeeded"
	// ReplicaFailed: a container failed; in a training job, the main container or an init container did.
	ReplicaFailed ReplicaPhase = "Failed"
	// ReplicaUnknown: the pod's state cannot be obtained.
	ReplicaUnknown ReplicaPhase = "Unknown"
	// ReplicaDeleted: the pod was deleted or disrupted before it finished, for example by a pause, by clean-up, by an
	// eviction or by a user.
	ReplicaDeleted ReplicaPhase = "Deleted"
)

// Aggregate counts the replicas in each phase. The counts always add up to the number of replicas that the job wants.
type Aggregate struct {
	// Creating counts replicas whose pod is being created or is not bound to a node yet.
	Creating int32 `json:"creating"`
	// Pending counts replicas whose pod is bound to a node and whose containers have not all started, and replicas of a
	// paused or finished job that never had a pod.
	Pending int32 `json:"pending"`
	// Running counts replicas whose containers have started and have not all ended.
	Running int32 `json:"running"`
	// Succeeded counts replicas that have succeeded: all containers ended with exit code 0; in a training job, the main
	// container did.
	Succeeded int32 `json:"succeeded"`
	// Failed counts replicas that have failed: a container failed; in a training job, the main container or an init
	// container did.
	Failed int32 `json:"failed"`
	// Unknown counts replicas whose state cannot be obtained.
	Unknown int32 `json:"unknown"`
	// Deleted counts replicas whose pod was deleted or disrupted before it finished.
	Deleted int32 `json:"deleted"`
}

// ContainerState is the state of a container in one word.
type ContainerState string

const (
	// ContainerWaiting: the container has not started yet.
	ContainerWaiting ContainerState = "Waiting"
	// ContainerRunning: the container has started and not ended.
	ContainerRunning ContainerState = "Running"
	// ContainerTerminated: the container has ended.
	ContainerTerminated ContainerState = "Terminated"
)

// ContainerStatus is the observed state of one container.
type ContainerStatus struct {
	// Name of the container.
	Name string `json:"name"`
	// State is Waiting, Running or Terminated.
	State ContainerState `json:"state"`
	// ExitCode is the exit code; unset until the container has ended. 128+n means that signal n ended the container.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
}

// ReplicaStatus is the observed state of one replica.
type ReplicaStatus struct {
	// Name of the replica and of its pod.
	Name string `json:"name"`
	// UID of the current pod; unset while there is none.
	// +optional
	UID string `json:"uid,omitempty"`
	// Phase of the replica.
	Phase ReplicaPhase `json:"phase"`
	// Containers lists the states of the pod's containers, without init containers. In a training job, the main
	// container comes first.
	// +optional
	// +listType=atomic
	Containers []ContainerStatus `json:"containers,omitempty"`
	// RestartCount is the number of restarts charged to this replica. If the restart scope is Job, it is the number of
	// charged incidents that this replica began.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// Attempt is the number of earlier pods of this replica: 0 for the first pod. Pods that were replaced without a
	// charge count too.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// Backoff is the number of consecutive replacements of this replica's pod. It determines the delay before the next
	// replacement. After a pod that has run for ten minutes, the number starts again from 1.
	// +optional
	Backoff int32 `json:"backoff,omitempty"`
	// Incident is the number of the last incident in which this replica failed, counted from 1; unset if it has not
	// failed in an incident.
	// +optional
	Incident int32 `json:"incident,omitempty"`
	// NodeName is the name of the node to which the pod is bound; unset while there is none.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Reason is a CamelCase word for why the replica is in this phase, for example BackOff or OOMKilled; unset if the
	// phase needs no reason.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// OmittedReplicas describes replicas of one role that the field replicas omits and that have the same values in the
// fields below.
type OmittedReplicas struct {
	// Ranks lists the ranks of the replicas as numbers and ranges, for example "0-41,57".
	Ranks string `json:"ranks"`
	// Phase of each replica.
	Phase ReplicaPhase `json:"phase"`
	// RestartCount is the number of restarts charged to each replica.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// Attempt is the number of earlier pods of each replica.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// Backoff is the number of consecutive replacements of each replica's pod.
	// +optional
	Backoff int32 `json:"backoff,omitempty"`
	// Incident is the number of the last incident in which each replica failed.
	// +optional
	Incident int32 `json:"incident,omitempty"`
	// Pods is true if each replica has a pod, and false if none has.
	// +optional
	Pods bool `json:"pods,omitempty"`
	// ExitCode is the exit code of each replica; unset if the replicas have not ended or the code is unknown.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
}

// Tasks is the observed state of the replicas of one role.
type Tasks struct {
	// Type is the role.
	Type string `json:"type"`
	// RestartCount is the sum of the restarts charged to the replicas of this role. It includes replicas that an
	// elastic job has removed.
	RestartCount int32 `json:"restartCount"`
	// Replicas lists the replicas by rank. If the job has more replicas than the operator's setting
	// jobs.maxListedReplicas (1000 by default), it lists only those that most need attention, and omitted describes the
	// others.
	// +optional
	// +listType=atomic
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	// OmittedReplicas is the number of replicas that the field replicas omits.
	// +optional
	OmittedReplicas int32 `json:"omittedReplicas,omitempty"`
	// Omitted describes the replicas that the field replicas omits.
	// +optional
	// +listType=atomic
	Omitted []OmittedReplicas `json:"omitted,omitempty"`
}

// Incident describes why one or all replicas restarted, and when all ran again.
type Incident struct {
	// Replica is the name of the replica that ended first.
	Replica string `json:"replica"`
	// Scope is Job if all replicas restart, and Replica if only the replicas that ended restart.
	Scope RestartScope `json:"scope"`
	// Charged is true if the incident counts as a restart (status.backoffCount), and false if it began with a
	// disruption.
	Charged bool `json:"charged"`
	// ExitCode of the replica; unset if it is not known.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason is a CamelCase word for why the replica ended, for example OOMKilled; unset if only the exit code is
	// known.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is the last line of the termination message of the container that failed, cut to 256 characters; unset if
	// there is none. If the container has the terminationMessagePolicy FallbackToLogsOnError and writes no message, the
	// last line of the log takes its place.
	// +optional
	Message string `json:"message,omitempty"`
	// StartTime is when the replica ended.
	StartTime metav1.Time `json:"startTime"`
	// RecoveryTime is when all replicas that the job waits for ran again; unset until then.
	// +optional
	RecoveryTime *metav1.Time `json:"recoveryTime,omitempty"`
}

// RunModeType is the name of a run mode.
type RunModeType string

const (
	// RunImmediate: the replicas run as the template says.
	RunImmediate RunModeType = "Immediate"
	// RunDebug: the replicas run the command of debug mode.
	RunDebug RunModeType = "Debug"
	// RunPause: the job is paused and has no pods.
	RunPause RunModeType = "Pause"
	// RunResume: the job was paused before, and the replicas run as the template and resumeSpecs say.
	RunResume RunModeType = "Resume"
)

// JobStatus is the observed state of a job of any kind.
type JobStatus struct {
	// Tasks holds the state of each role.
	// +optional
	// +listType=atomic
	Tasks []Tasks `json:"tasks,omitempty"`
	// Phase is the state of the job in one word.
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// Aggregate counts the replicas in each phase.
	// +optional
	Aggregate Aggregate `json:"aggregate,omitzero"`
	// Conditions holds the latest observations of the job's state. Every status has one condition of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []JobCondition `json:"conditions,omitempty"`
	// BackoffCount is the number of charged incidents: those that did not begin with a disruption.
	// runPolicy.backoffLimit of a training job limits it.
	// +optional
	BackoffCount int32 `json:"backoffCount"`
	// Restarts is the number of incidents. An incident begins when a replica ends and it, or all replicas, restart.
	// Replicas that fail before all run again belong to the same incident, unless one fails for a second time.
	// +optional
	Restarts int32 `json:"restarts"`
	// Incident describes the last incident; unset if there was none.
	// +optional
	Incident *Incident `json:"incident,omitempty"`
	// Replicas is the number of replicas that the job wants, over all roles.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Selector is the label selector of the pods of an elastic job, for autoscalers; unset for other jobs.
	// +optional
	Selector string `json:"selector,omitempty"`
	// RunMode is the run mode that the operator last applied.
	// +optional
	RunMode RunModeType `json:"runMode,omitempty"`
	// StartTime is when the operator began to create the first pods or, after a pause, when the job last resumed.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// RunSeconds is the time in seconds for which all replicas that the job waits for have run at the same time. Time
	// in queues, between restarts, in pauses and in debug mode does not count, nor does the current run, which began at
	// the lastTransitionTime of the condition Running.
	// +optional
	RunSeconds int64 `json:"runSeconds,omitempty"`
	// CompletionTime is when the job finished; unset until then.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
