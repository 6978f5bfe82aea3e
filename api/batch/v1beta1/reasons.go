package v1beta1

// Reason is the CamelCase reason of a condition or an event.
//
// +kubebuilder:validation:MaxLength=1024
type Reason string

// Reasons of conditions.
const (
	// ReasonAccepted (Initialized): the controller has accepted the job.
	ReasonAccepted Reason = "Accepted"
	// ReasonInvalidSpec (Initialized, Failed): the operator cannot carry out the spec. The message names the field and
	// the error.
	ReasonInvalidSpec Reason = "InvalidSpec"

	// ReasonCreatingReplicas (Running): pods are being created or have not started yet.
	ReasonCreatingReplicas Reason = "CreatingReplicas"
	// ReasonUnschedulable (Running): the scheduler has not placed a pod or the group of the pods. The message is the
	// scheduler's and gives the reason, for example a lack of room or a closed queue.
	ReasonUnschedulable Reason = "Unschedulable"
	// ReasonImpossible (Running): the job could not start even if nothing else ran. The message is the scheduler's. The
	// scheduler tries the job again when its queue or a node changes.
	ReasonImpossible Reason = "Impossible"
	// ReasonNotStarted (Running): a pod is bound to a node, but its containers cannot start. The message is the
	// kubelet's.
	ReasonNotStarted Reason = "ContainersNotStarted"
	// ReasonRestarting (Running): replicas are being replaced.
	ReasonRestarting Reason = "RestartingReplicas"
	// ReasonNameTaken (Running): an object with a name that the job needs belongs to another owner.
	ReasonNameTaken Reason = "NameTaken"
	// ReasonCreateRefused (Running): the API server refuses an object of the job. The message is the API server's.
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
	// ReasonNotPaused (Paused): the job has never been paused.
	ReasonNotPaused Reason = "NotPaused"

	// ReasonNoReplicaFailed (ReplicaFailure): no replica has failed for good.
	ReasonNoReplicaFailed Reason = "NoReplicaFailed"
	// ReasonReplicaFailed (ReplicaFailure, Failed): a replica has failed for good: no restart is left or allowed. It is
	// the reason of Failed if the other replicas cannot continue without this one.
	ReasonReplicaFailed Reason = "ReplicaFailed"

	// ReasonNotFinished (Completed, Failed): the job has not finished.
	ReasonNotFinished Reason = "NotFinished"
	// ReasonSuccessRule (Completed): a success rule holds or, without success rules, all replicas have succeeded. The
	// success rule of a training job is that its master succeeds.
	ReasonSuccessRule Reason = "SuccessRuleMet"
	// ReasonFailureRule (Failed): a failure rule holds or, without any finish rules, a replica has failed for good. The
	// failure rule of a training job is that its master fails for good.
	ReasonFailureRule Reason = "FailureRuleMet"
	// ReasonSuccessRulesUnsatisfiable (Failed): no success rule can hold any more or, in a job with only failure rules,
	// a replica has failed for good.
	ReasonSuccessRulesUnsatisfiable Reason = "SuccessRulesUnsatisfiable"
	// ReasonDeadlineExceeded (Failed): the job was active for longer than runPolicy.activeDeadlineSeconds.
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"
	// ReasonBackoffLimitExceeded (Failed): a replica failed, and runPolicy.backoffLimit allows no further retry.
	ReasonBackoffLimitExceeded Reason = "BackoffLimitExceeded"
	// ReasonQueueMaxDuration (Failed): a pod of the job was older than the maxDuration of its queue.
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
	// EventJobStarted: the first pods are being created, or the job enters debug mode.
	EventJobStarted Reason = "JobStarted"
	// EventJobScaled: the number of replicas of an elastic job has changed.
	EventJobScaled Reason = "JobScaled"
	// EventIncident: an incident has begun: a replica ended, and it or all replicas restart.
	EventIncident Reason = "Incident"
	// EventRecovered: all replicas run again after an incident.
	EventRecovered Reason = "Recovered"
	// EventReplicaRestarted: a replica ended and restarts alone. The restart is charged.
	EventReplicaRestarted Reason = "ReplicaRestarted"
	// EventReplicaDisrupted: a replica's pod was disrupted from outside, for example by an eviction, and has been
	// replaced. The replacement is not charged.
	EventReplicaDisrupted Reason = "ReplicaDisrupted"
	// EventNodeLost: a pod on a lost node is being deleted by force.
	EventNodeLost Reason = "NodeLost"
	// EventReplicasHoldResources: the job has finished, and pods still run, because its clean-up policy is None.
	EventReplicasHoldResources Reason = "ReplicasHoldResources"
)
