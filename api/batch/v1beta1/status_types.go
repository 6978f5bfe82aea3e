package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobPhase is the state of a job in one word. The conditions hold the details.
type JobPhase string

const (
	// JobPending: the job waits for replicas, because not all have run at the same time yet or none runs any more.
	JobPending JobPhase = "Pending"
	// JobRunning: every replica that the job waits for has run. While some of them restart and others still run, the
	// Running condition is False.
	JobRunning JobPhase = "Running"
	// JobPaused: paused; the pods are gone or ending.
	JobPaused JobPhase = "Paused"
	// JobResuming: resumed from a pause, waiting for replicas.
	JobResuming JobPhase = "Resuming"
	// JobSucceeded: a success rule holds. Final.
	JobSucceeded JobPhase = "Succeeded"
	// JobFailed: a failure rule holds, or no success rule can hold any more. Final.
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
	// JobReplicaFailure is True while a replica has failed for good.
	JobReplicaFailure JobConditionType = "ReplicaFailure"
	// JobCompleted is True when the job has succeeded.
	JobCompleted JobConditionType = "Completed"
	// JobFailedCondition is True when the job has failed.
	JobFailedCondition JobConditionType = "Failed"
	// JobPausedCondition is True while the job is paused.
	JobPausedCondition JobConditionType = "Paused"
)

// Reason is the CamelCase reason of a condition or an event.
//
// +kubebuilder:validation:MaxLength=1024
type Reason string

// Reasons of conditions.
const (
	// ReasonAccepted (Initialized): the controller has accepted the job.
	ReasonAccepted Reason = "Accepted"
	// ReasonInvalidSpec (Initialized, Failed): the operator cannot carry out the spec; the message names the field and
	// the error.
	ReasonInvalidSpec Reason = "InvalidSpec"

	// ReasonCreatingReplicas (Running): pods are being created or have not started yet.
	ReasonCreatingReplicas Reason = "CreatingReplicas"
	// ReasonUnschedulable (Running): the scheduler finds no room; the message is the scheduler's.
	ReasonUnschedulable Reason = "Unschedulable"
	// ReasonImpossible (Running): the job could not start even if nothing else ran; the message is the scheduler's. It
	// starts once the quota of its queue or the nodes change.
	ReasonImpossible Reason = "Impossible"
	// ReasonNotStarted (Running): a pod is bound to a node and its containers cannot start yet; the message is the
	// kubelet's.
	ReasonNotStarted Reason = "ContainersNotStarted"
	// ReasonRestarting (Running): replicas are being replaced.
	ReasonRestarting Reason = "RestartingReplicas"
	// ReasonNameTaken (Running): an object with a name that the job needs belongs to another owner.
	ReasonNameTaken Reason = "NameTaken"
	// ReasonCreateRefused (Running): the API server refuses an object of the job; the message is the API server's.
	ReasonCreateRefused Reason = "CreateRefused"
	// ReasonReplicasRunning (Running): every replica that the job waits for runs.
	ReasonReplicasRunning Reason = "ReplicasRunning"
	// ReasonDebugging (Running): the replicas run the debug command.
	ReasonDebugging Reason = "Debugging"
	// ReasonReplicaUnknown (Running): the state of a replica cannot be obtained.
	ReasonReplicaUnknown Reason = "ReplicaUnknown"
	// ReasonJobFinished (Running, Paused): the job has finished.
	ReasonJobFinished Reason = "JobFinished"

	// ReasonPaused (Paused, Running): runMode.pause is enabled.
	ReasonPaused Reason = "Paused"
	// ReasonResumed (Paused): the job was paused and has been resumed.
	ReasonResumed Reason = "Resumed"
	// ReasonNotPaused (Paused): the job was never paused.
	ReasonNotPaused Reason = "NotPaused"

	// ReasonNoReplicaFailed (ReplicaFailure): no replica has failed for good.
	ReasonNoReplicaFailed Reason = "NoReplicaFailed"
	// ReasonReplicaFailed (ReplicaFailure, Failed): a replica failed and no restart is left or allowed. The job fails
	// if the other replicas cannot continue without this one.
	ReasonReplicaFailed Reason = "ReplicaFailed"

	// ReasonNotFinished (Completed, Failed): the job has not finished.
	ReasonNotFinished Reason = "NotFinished"
	// ReasonSuccessRule (Completed): a success rule holds.
	ReasonSuccessRule Reason = "SuccessRuleMet"
	// ReasonFailureRule (Failed): a failure rule holds.
	ReasonFailureRule Reason = "FailureRuleMet"
	// ReasonSuccessRulesUnsatisfiable (Failed): no success rule can hold any more.
	ReasonSuccessRulesUnsatisfiable Reason = "SuccessRulesUnsatisfiable"
	// ReasonDeadlineExceeded (Failed): the job was active for longer than activeDeadlineSeconds.
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"
	// ReasonBackoffLimitExceeded (Failed): a replica failed, and backoffLimit allows no further restart.
	ReasonBackoffLimitExceeded Reason = "BackoffLimitExceeded"
	// ReasonQueueMaxDuration (Failed): a pod of the job was older than its queue allows.
	ReasonQueueMaxDuration Reason = "QueueMaxDuration"
	// ReasonJobSucceeded (Failed): the job has succeeded.
	ReasonJobSucceeded Reason = "JobSucceeded"
	// ReasonJobFailed (Completed): the job has failed.
	ReasonJobFailed Reason = "JobFailed"
)

// Reasons that only events have.
const (
	// EventJobPaused: the job was paused.
	EventJobPaused Reason = "JobPaused"
	// EventJobResumed: the job was resumed.
	EventJobResumed Reason = "JobResumed"
	// EventJobStarted: the first pods are being created.
	EventJobStarted Reason = "JobStarted"
	// EventJobScaled: the number of replicas of an elastic job has changed.
	EventJobScaled Reason = "JobScaled"
	// EventIncident: a replica ended while all ran, and it or all replicas restart.
	EventIncident Reason = "Incident"
	// EventRecovered: all replicas run again after an incident.
	EventRecovered Reason = "Recovered"
	// EventReplicaRestarted: a replica ended and is restarted; the restart is charged to its limit.
	EventReplicaRestarted Reason = "ReplicaRestarted"
	// EventReplicaDisrupted: a replica's pod was disrupted from outside, for example evicted, and is replaced; the
	// restart is not charged.
	EventReplicaDisrupted Reason = "ReplicaDisrupted"
	// EventNodeLost: a pod on a lost node was deleted by force.
	EventNodeLost Reason = "NodeLost"
	// EventReplicasHoldResources: the job has finished, and its clean-up policy None keeps pods that still run.
	EventReplicasHoldResources Reason = "ReplicasHoldResources"
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
	// Reason is a CamelCase word for programs.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// ReplicaPhase is the state of a replica in one word.
type ReplicaPhase string

const (
	// ReplicaCreating: the pod is being created or is not scheduled yet.
	ReplicaCreating ReplicaPhase = "Creating"
	// ReplicaPending: the pod is bound to a node; a container has not started yet.
	ReplicaPending ReplicaPhase = "Pending"
	// ReplicaRunning: the pod's containers have started.
	ReplicaRunning ReplicaPhase = "Running"
	// ReplicaSucceeded: every container ended with exit code 0; in a training job, the main one did.
	ReplicaSucceeded ReplicaPhase = "Succeeded"
	// ReplicaFailed: a container failed; in a training job, the main one or one that it waits for did.
	ReplicaFailed ReplicaPhase = "Failed"
	// ReplicaUnknown: the pod's state cannot be obtained.
	ReplicaUnknown ReplicaPhase = "Unknown"
	// ReplicaDeleted: the pod was deleted, by a pause, by clean-up or by somebody else, before it finished.
	ReplicaDeleted ReplicaPhase = "Deleted"
)

// Aggregate counts the replicas in each phase. The counts always add up to the number of replicas that the job wants.
type Aggregate struct {
	// Creating counts replicas whose pod is being created or is not scheduled yet.
	Creating int32 `json:"creating"`
	// Pending counts replicas whose pod is bound and whose containers have not all started.
	Pending int32 `json:"pending"`
	// Running counts replicas whose containers run.
	Running int32 `json:"running"`
	// Succeeded counts replicas whose containers all ended with exit code 0; in a training job, whose main container
	// did.
	Succeeded int32 `json:"succeeded"`
	// Failed counts replicas with a failed container; in a training job, with a failed main container.
	Failed int32 `json:"failed"`
	// Unknown counts replicas whose state cannot be obtained.
	Unknown int32 `json:"unknown"`
	// Deleted counts replicas whose pod was deleted before it finished.
	Deleted int32 `json:"deleted"`
}

// ContainerState is the state of a container in one word.
type ContainerState string

const (
	// ContainerWaiting: not started yet.
	ContainerWaiting ContainerState = "Waiting"
	// ContainerRunning: started and not ended.
	ContainerRunning ContainerState = "Running"
	// ContainerTerminated: ended.
	ContainerTerminated ContainerState = "Terminated"
)

// ContainerStatus is the observed state of one container.
type ContainerStatus struct {
	// Name of the container.
	Name string `json:"name"`
	// State is Waiting, Running or Terminated.
	State ContainerState `json:"state"`
	// ExitCode is set once the container has ended. 128+n means that signal n ended the container.
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
	// Containers lists the state of the main containers.
	// +optional
	// +listType=atomic
	Containers []ContainerStatus `json:"containers,omitempty"`
	// RestartCount is the number of restarts charged to this replica. If the restart scope is Job, it is the number of
	// incidents that this replica began.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// Attempt is the number of earlier pods of this replica. Restarts and replacements both count.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// Backoff is the number of consecutive replacements, none of which ran for ten minutes. It sets the delay before
	// the next one.
	// +optional
	Backoff int32 `json:"backoff,omitempty"`
	// Incident is the number of the last incident in which this replica failed.
	// +optional
	Incident int32 `json:"incident,omitempty"`
	// NodeName is the node that the pod is bound to.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Reason is why the replica is in this phase, in a word or two, if the phase does not show it.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// OmittedReplicas describes replicas of one role that `replicas` omits and that have equal values in the fields below.
type OmittedReplicas struct {
	// Ranks lists the replicas as ranges, for example "0-41,57".
	Ranks string `json:"ranks"`
	// Phase of each of them.
	Phase ReplicaPhase `json:"phase"`
	// RestartCount is the number of restarts charged to each of them.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// Attempt is the number of earlier pods of each of them.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// Backoff is the number of consecutive replacements of each of them.
	// +optional
	Backoff int32 `json:"backoff,omitempty"`
	// Incident is the number of the last incident in which each of them failed.
	// +optional
	Incident int32 `json:"incident,omitempty"`
	// Pods is true if each of them has a pod.
	// +optional
	Pods bool `json:"pods,omitempty"`
	// ExitCode is the exit code of each of them, if they have ended.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
}

// Tasks is the observed state of the replicas of one role.
type Tasks struct {
	// Type is the role.
	Type string `json:"type"`
	// RestartCount is the number of restarts charged to the replicas of this role together.
	RestartCount int32 `json:"restartCount"`
	// Replicas lists the replicas by rank. In a very large job it lists the replicas that need attention first, and
	// omitted describes the rest.
	// +optional
	// +listType=atomic
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	// OmittedReplicas is the number of replicas that replicas omits.
	// +optional
	OmittedReplicas int32 `json:"omittedReplicas,omitempty"`
	// Omitted describes the replicas that replicas omits.
	// +optional
	// +listType=atomic
	Omitted []OmittedReplicas `json:"omitted,omitempty"`
}

// Incident describes why one or all replicas restarted, and how long it took until all ran again.
type Incident struct {
	// Replica is the name of the replica that ended first.
	Replica string `json:"replica"`
	// Scope is Job if all replicas restart, and Replica if only those restart that ended.
	Scope RestartScope `json:"scope"`
	// Charged is true if the incident counts towards backoffLimit, and false if it began with a disruption.
	Charged bool `json:"charged"`
	// ExitCode of the replica, if it is known.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason is why the replica ended, in a word, if the exit code does not show it, for example OOMKilled.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is the last line of the replica's termination message, if there is one. With terminationMessagePolicy
	// FallbackToLogsOnError it is the last line of its log.
	// +optional
	Message string `json:"message,omitempty"`
	// StartTime is when the replica ended.
	StartTime metav1.Time `json:"startTime"`
	// RecoveryTime is when all replicas that the job waits for ran again.
	// +optional
	RecoveryTime *metav1.Time `json:"recoveryTime,omitempty"`
}

// RunModeType names a run mode.
type RunModeType string

const (
	// RunImmediate: the replicas run as the template says.
	RunImmediate RunModeType = "Immediate"
	// RunDebug: the replicas run the debug command.
	RunDebug RunModeType = "Debug"
	// RunPause: there are no pods.
	RunPause RunModeType = "Pause"
	// RunResume: the replicas run as the template and resumeSpecs say.
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
	// BackoffCount is the number of incidents that count towards backoffLimit: those that began with a failure and not
	// with a disruption.
	// +optional
	BackoffCount int32 `json:"backoffCount"`
	// Restarts is the number of incidents. An incident begins when a replica ends and it, or all replicas, restart.
	// Replicas that fail before all run again belong to the same incident.
	// +optional
	Restarts int32 `json:"restarts"`
	// Incident describes the last incident.
	// +optional
	Incident *Incident `json:"incident,omitempty"`
	// Replicas is the number of replicas that the job wants, over all roles.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Selector selects the pods of an elastic job, for autoscalers.
	// +optional
	Selector string `json:"selector,omitempty"`
	// RunMode is the mode that the current pods were made for.
	// +optional
	RunMode RunModeType `json:"runMode,omitempty"`
	// StartTime is when the first pods were created; after a pause, when the job last resumed.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// RunSeconds is the time, in seconds, for which all replicas that the job waits for have run at the same time. It
	// does not include a run that has not ended; that run began at the lastTransitionTime of the condition Running.
	// Time in queues, between restarts, in pauses and in debug mode does not count.
	// +optional
	RunSeconds int64 `json:"runSeconds,omitempty"`
	// CompletionTime is when the job finished.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// ObservedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
