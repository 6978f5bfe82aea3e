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
	// LabelReplicaAttempt holds the number of earlier pods of the replica: 0 for the first pod.
	LabelReplicaAttempt = "batch.tensorstack.dev/replica-attempt"
	// LabelComponent holds the job's kind in lower case.
	LabelComponent = "tensorstack.dev/component"

	// AnnotationRestarts holds the number of restarts that were charged to the replica until this pod was created.
	AnnotationRestarts = "batch.tensorstack.dev/restarts"
	// AnnotationBackoff holds the number of consecutive replacements of the replica's pod, including the replacement by
	// this pod. It determines the delay before the next replacement. After a pod that has run for ten minutes, the
	// number starts again from 1.
	AnnotationBackoff = "batch.tensorstack.dev/backoff"
	// AnnotationJobRestarts and AnnotationBackoffCount hold status.restarts and status.backoffCount of the job at the
	// time when this pod was created. A pod has no annotation for a number that was 0.
	AnnotationJobRestarts  = "batch.tensorstack.dev/job-restarts"
	AnnotationBackoffCount = "batch.tensorstack.dev/backoff-count"
	// AnnotationRunMode holds the RunModeType for which this pod was created.
	AnnotationRunMode = "batch.tensorstack.dev/run-mode"
)

// AnnotationReplicaEnds is an annotation of the events EventReplicaRestarted and EventReplicaDisrupted. Its value is a
// JSON list with the end of each replica that the event's message names. An item has the field replica (the name), and
// restart, limit, exitCode and startFailure for a charged restart, or reason for a replacement without charge. Fields
// without a value are left out.
const AnnotationReplicaEnds = "batch.tensorstack.dev/replica-ends"

// These labels and annotations mark the jobs of a sweep: jobs that were created from one manifest and differ in the
// values of parameters. Clients set them.
const (
	// LabelSweep holds the name of the sweep.
	LabelSweep = "batch.tensorstack.dev/sweep"
	// AnnotationParameters holds a JSON object that maps the names of the parameters to their values, as strings.
	AnnotationParameters = "batch.tensorstack.dev/parameters"
	// AnnotationSweepManifest holds a digest of the manifest from which the sweep was started.
	AnnotationSweepManifest = "batch.tensorstack.dev/sweep-manifest"
)
