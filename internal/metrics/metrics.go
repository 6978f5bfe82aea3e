package metrics

const (
	minute = 60.
	hour   = 60 * minute
	day    = 24 * hour
)

// Buckets of histograms, in seconds.
var (
	startBuckets  = []float64{1, 2, 5, 10, 30, minute, 5 * minute, 15 * minute, hour, 4 * hour, day}
	finishBuckets = []float64{10, minute, 5 * minute, 15 * minute, hour, 4 * hour, 12 * hour, day, 3 * day, 7 * day, 30 * day}
	pageBuckets   = []float64{0.005, 0.02, 0.1, 0.5, 2, 10}
	roundBuckets  = []float64{0.001, 0.004, 0.016, 0.064, 0.25, 1, 4, 16}
)

var (
	labelKind   = Label{"kind", "kind of job, for example GenericJob"}
	labelQueue  = Label{"queue", "name of the queue"}
	labelPage   = Label{"page", "jobs, job, logs, queues, nodes, submit, act (on several jobs), history, api (the JSON API), static, oidc (the sign-in) or other"}
	labelAmount = Label{"resource", "name of the resource, for example cpu or nvidia.com/gpu"}
)

// The metrics of the operator.
var (
	ControllerWaiting = Definition{
		Name: "t9k_controller_waiting", Type: Gauge, Program: Operator,
		Help: "1 for each controller that has not started, because a resource that it reads is missing or forbidden.",
		Labels: []Label{{"controller", "name of the controller"},
			{"resource", "kind and group that is missing or forbidden, for example TensorBoard.tensorstack.dev; empty if the controller waits for something else"}},
	}
	APIWrites = Definition{
		Name: "t9k_api_writes_total", Type: Counter, Program: Operator,
		Help: "Requests to the API server that create, change or delete objects.",
		Labels: []Label{{"resource", "resource and subresource, for example pods or genericjobs/status"},
			{"verb", "create, update, patch, delete or deletecollection"},
			{"result", "ok, conflict (409), not_found (404), throttled (429), refused (other 4xx), failed (5xx) or unanswered"}},
	}
	Jobs = Definition{
		Name: "t9k_jobs", Type: Gauge, Program: Operator,
		Help:   "Jobs that exist, by phase. A job without a phase yet counts as Pending.",
		Labels: []Label{labelKind, {"phase", "Pending, Running, Paused, Resuming, Succeeded, Failed or Unknown"}},
	}
	JobOldestWithoutPods = Definition{
		Name: "t9k_job_oldest_without_pods_seconds", Type: Gauge, Program: Operator,
		Help:   "Age of the oldest job that is neither paused nor finished and for which the operator has not decided to create pods; 0 if there is none.",
		Labels: []Label{labelKind},
	}
	JobTimeToFirstPod = Definition{
		Name: "t9k_job_time_to_first_pod_seconds", Type: Histogram, Program: Operator,
		Help:   "Time from the creation of a job to the decision to create its first pods, once for each job. It includes a pause before that.",
		Labels: []Label{labelKind}, Buckets: startBuckets,
	}
	JobTimeToRunning = Definition{
		Name: "t9k_job_time_to_running_seconds", Type: Histogram, Program: Operator,
		Help:   "Time from the creation of a job until all its replicas ran for the first time, once for each job. Jobs that were debugged, paused or restarted before that do not count.",
		Labels: []Label{labelKind}, Buckets: startBuckets,
	}
	JobTimeToFinish = Definition{
		Name: "t9k_job_time_to_finish_seconds", Type: Histogram, Program: Operator,
		Help:   "Time from the creation of a job to its end, once for each job.",
		Labels: []Label{labelKind, {"phase", "Succeeded or Failed"}}, Buckets: finishBuckets,
	}
	JobRestarts = Definition{
		Name: "t9k_job_restarts_total", Type: Counter, Program: Operator,
		Help: "Incidents: a replica ended, and it or all replicas of its job restart. Replicas that fail together are one incident.",
		Labels: []Label{labelKind, {"scope", "Replica or Job: what restarts"},
			{"cause", "disruption (not charged to limits), out_of_memory, evicted (the pod exceeded its own limits) or failure (any other)"}},
	}
	QueuePods = Definition{
		Name: "t9k_queue_pods", Type: Gauge, Program: Operator,
		Help: "Pods of a queue that have not ended, by their phase. Pods that are bound and whose containers have not started are Pending.", Labels: []Label{labelQueue, {"phase", "Pending or Running"}},
	}
	QueueAllocated = Definition{
		Name: "t9k_queue_allocated", Type: Gauge, Program: Operator,
		Help: "Requests of the pods of a queue that are bound to a node and have not ended, in units of the resource.", Labels: []Label{labelQueue, labelAmount},
	}
	QueueQuota = Definition{
		Name: "t9k_queue_quota", Type: Gauge, Program: Operator,
		Help: "Quota of a queue, in units of the resource. A resource without quota has no value.", Labels: []Label{labelQueue, labelAmount},
	}
	QueuePendingGroups = Definition{
		Name: "t9k_queue_pending_groups", Type: Gauge, Program: Operator,
		Help: "PodGroups of a queue that have pods and wait to be scheduled.", Labels: []Label{labelQueue},
	}
	QueueOldestPendingGroup = Definition{
		Name: "t9k_queue_oldest_pending_group_seconds", Type: Gauge, Program: Operator,
		Help: "Longest time for which one of the pending PodGroups of a queue has waited; 0 if none waits. A pause counts if the group waited before it.", Labels: []Label{labelQueue},
	}
	WebhookCertificateExpiry = Definition{
		Name: "t9k_webhook_certificate_expiry_timestamp_seconds", Type: Gauge, Program: Operator,
		Help: "Time at which the certificate of the webhooks expires, in seconds since 1970. It has no value without a certificate.",
	}
)

// The metrics of the scheduler.
var (
	SchedulerRound = Definition{
		Name: "t9k_scheduler_round_seconds", Type: Histogram, Program: Scheduler,
		Help: "Duration of the rounds that decide about waiting groups. Rounds without a group to try do not count.", Buckets: roundBuckets,
	}
	SchedulerAttempts = Definition{
		Name: "t9k_scheduler_attempts_total", Type: Counter, Program: Scheduler,
		Help:   "Attempts to bind the pods of a plan that have ended.",
		Labels: []Label{{"result", "bound (all pods of the plan) or failed"}},
	}
	SchedulerEvictedPods = Definition{
		Name: "t9k_scheduler_evicted_pods_total", Type: Counter, Program: Scheduler,
		Help:   "Pods that the scheduler evicted.",
		Labels: []Label{{"cause", "preemption (another group needs the room) or incomplete (the pod's own group could not be completed)"}},
	}
	SchedulerGroupWait = Definition{
		Name: "t9k_scheduler_group_wait_seconds", Type: Histogram, Program: Scheduler,
		Help:   "Time from the creation of the youngest pod of a PodGroup until its minimum was bound. A group that starts anew counts again.",
		Labels: []Label{labelQueue}, Buckets: startBuckets,
	}
	SchedulerPlannerBusy = Definition{
		Name: "t9k_scheduler_planner_busy_seconds", Type: Gauge, Program: Scheduler,
		Help: "Time since the planner, which decides about groups, last waited for something to do; 0 while it waits.",
	}
)

// The metrics of the console.
var (
	ConsoleRequests = Definition{
		Name: "t9k_console_request_seconds", Type: Histogram, Program: Console,
		Help:   "Duration of the requests that the console has answered. Streams of changes count only if they were refused.",
		Labels: []Label{labelPage, {"code", "HTTP code of the answer"}}, Buckets: pageBuckets,
	}
	ConsoleViewers = Definition{
		Name: "t9k_console_viewers", Type: Gauge, Program: Console,
		Help: "Pages and logs that are open in browsers and are kept up to date.", Labels: []Label{labelPage},
	}
	ConsoleReviews = Definition{
		Name: "t9k_console_reviews_total", Type: Counter, Program: Console,
		Help: "Questions to the API server about users: who has a token, and what somebody may do.",
		Labels: []Label{{"resource", "tokenreviews or subjectaccessreviews"},
			{"result", "ok, throttled (429), refused (other 4xx), failed (5xx) or unanswered"}},
	}
	ConsoleArchiveWrites = Definition{
		Name: "t9k_console_archive_writes_total", Type: Counter, Program: Console,
		Help:   "Attempts to write to the archive. There is one at least every 5 seconds. A failed one is repeated.",
		Labels: []Label{{"result", "ok or failed"}},
	}
	ConsoleArchiveLag = Definition{
		Name: "t9k_console_archive_lag_seconds", Type: Gauge, Program: Console,
		Help: "Time for which the oldest record has waited to be written to the archive; 0 if none waits.",
	}
	ConsoleArchiveSize = Definition{
		Name: "t9k_console_archive_size_bytes", Type: Gauge, Program: Console,
		Help: "Size of the database of the archive. It has no value if the database does not answer.",
	}
)

// All returns the definitions of all metrics.
func All() []Definition {
	return []Definition{
		Jobs, JobOldestWithoutPods, JobTimeToFirstPod, JobTimeToRunning, JobTimeToFinish, JobRestarts,
		QueuePods, QueueAllocated, QueueQuota, QueuePendingGroups, QueueOldestPendingGroup,
		APIWrites, ControllerWaiting, WebhookCertificateExpiry,
		SchedulerRound, SchedulerAttempts, SchedulerEvictedPods, SchedulerGroupWait, SchedulerPlannerBusy,
		ConsoleRequests, ConsoleViewers, ConsoleReviews, ConsoleArchiveWrites, ConsoleArchiveLag, ConsoleArchiveSize,
	}
}
