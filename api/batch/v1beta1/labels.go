package v1beta1

// Labels and annotations that the controller sets on the pods of a job. They override those of the pod template.
const (
	// LabelJobName holds the job's name.
	LabelJobName = "batch.tensorstack.dev/job-name"
	// LabelJobKind holds the job's kind, for example GenericJob.
	LabelJobKind = "batch.tensorstack.dev/job-kind"
	// LabelReplicaType holds the replica's role.
	LabelReplicaType = "batch.tensorstack.dev/replica-type"
	// LabelReplicaRank holds the replica's rank within its role, counted from 0.
	LabelReplicaRank = "batch.tensorstack.dev/replica-rank"
	// LabelReplicaAttempt is the number of earlier pods of the replica: 0 for the first pod.
	LabelReplicaAttempt = "batch.tensorstack.dev/replica-attempt"
	// LabelComponent holds the job's kind in lower case.
	LabelComponent = "tensorstack.dev/component"

	// AnnotationRestarts is the number of restarts charged to the replica when this pod was created.
	AnnotationRestarts = "batch.tensorstack.dev/restarts"
	// AnnotationBackoff is the number of consecutive replacements up to this pod, none of which ran for ten minutes. It
	// sets the delay before the next one.
	AnnotationBackoff = "batch.tensorstack.dev/backoff"
	// AnnotationJobRestarts and AnnotationBackoffCount hold status.restarts and status.backoffCount as they were when
	// this pod was created, unless they were 0.
	AnnotationJobRestarts  = "batch.tensorstack.dev/job-restarts"
	AnnotationBackoffCount = "batch.tensorstack.dev/backoff-count"
	// AnnotationRunMode holds the RunModeType that this pod was made for.
	AnnotationRunMode = "batch.tensorstack.dev/run-mode"
)

// AnnotationReplicaEnds is an annotation of the events EventReplicaRestarted and EventReplicaDisrupted. Its value is a
// JSON list of the ends of the replicas that the event's message names. An item has the fields replica (its name),
// restart and limit (for a charged restart), exitCode or startFailure, and reason (for a replacement without charge).
const AnnotationReplicaEnds = "batch.tensorstack.dev/replica-ends"

// These mark the jobs of a sweep: jobs of one manifest that differ in the values of parameters. Clients set them.
const (
	// LabelSweep is the name of the sweep.
	LabelSweep = "batch.tensorstack.dev/sweep"
	// AnnotationParameters holds the values of the parameters by their names, as a JSON object of strings.
	AnnotationParameters = "batch.tensorstack.dev/parameters"
	// AnnotationSweepManifest is a digest of the manifest that the sweep was started with.
	AnnotationSweepManifest = "batch.tensorstack.dev/sweep-manifest"
)
