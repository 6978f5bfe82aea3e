package v1beta1

// Labels and annotations that the controller sets on the pods of a job. On a clash with a label of the pod template the
// controller's value wins.
const (
	// LabelJobName holds the job's name.
	LabelJobName = "batch.tensorstack.dev/job-name"
	// LabelJobKind holds the job's kind, for example GenericJob.
	LabelJobKind = "batch.tensorstack.dev/job-kind"
	// LabelReplicaType holds the replica's role.
	LabelReplicaType = "batch.tensorstack.dev/replica-type"
	// LabelReplicaRank holds the replica's rank within its role, counted from 0.
	LabelReplicaRank = "batch.tensorstack.dev/replica-rank"
	// LabelReplicaAttempt tells how many pods carried this replica before this one: 0 for the first.
	LabelReplicaAttempt = "batch.tensorstack.dev/replica-attempt"
	// LabelComponent holds the job's kind in lower case.
	LabelComponent = "tensorstack.dev/component"

	// AnnotationRestarts tells how many restarts had been charged to the replica when this pod was created.
	AnnotationRestarts = "batch.tensorstack.dev/restarts"
	// AnnotationBackoff tells how many replacements in a row, none of which ran for ten minutes, led to this pod. It sets
	// the delay before the next one.
	AnnotationBackoff = "batch.tensorstack.dev/backoff"
	// AnnotationJobRestarts and AnnotationBackoffCount hold status.restarts and status.backoffCount as they were when this pod
	// was created, where they were not 0.
	AnnotationJobRestarts  = "batch.tensorstack.dev/job-restarts"
	AnnotationBackoffCount = "batch.tensorstack.dev/backoff-count"
	// AnnotationRunMode holds the RunModeType that this pod was made for.
	AnnotationRunMode = "batch.tensorstack.dev/run-mode"
)

// AnnotationReplicaEnds is carried by the events EventReplicaRestarted and EventReplicaDisrupted of a job: a JSON list of how
// the replicas ended that the event's message names. An item has the fields replica (its name), restart and limit (of a charged
// restart), exitCode or startFailure, and reason (of a replacement without charge).
const AnnotationReplicaEnds = "batch.tensorstack.dev/replica-ends"
