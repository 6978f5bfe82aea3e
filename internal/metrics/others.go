package metrics

// Other is a metric of a library or of another program that the alerts and dashboards use.
type Other struct {
	Name, Help string
	Type       Type
	// Source is the library or program that defines the metric.
	Source string
	// Programs are the programs that serve the metric.
	Programs []Program
}

// APIServer is the API server, which serves metrics about webhooks.
const APIServer Program = "kube-apiserver"

// Others returns the metrics of libraries and other programs that the alerts and dashboards use.
func Others() []Other {
	const runtime, clientGo, apiServer, scheduler = "controller-runtime", "client-go", "kube-apiserver", "kube-scheduler"
	operator, both, all := []Program{Operator}, []Program{Operator, Scheduler}, []Program{Operator, Scheduler, Console}
	return []Other{
		{"leader_election_master_status", "1 in the replica that leads, 0 in the others. The label `name` is the name of the Lease: t9k-operator or t9k-scheduler.", Gauge, clientGo, both},
		{"process_resident_memory_bytes", "Memory that the process uses.", Gauge, "client_golang", all},
		{"process_cpu_seconds_total", "CPU time that the process has used.", Counter, "client_golang", all},
		{"controller_runtime_reconcile_total", "Passes of each controller, by result.", Counter, runtime, operator},
		{"controller_runtime_reconcile_errors_total", "Passes of each controller that failed.", Counter, runtime, operator},
		{"controller_runtime_reconcile_time_seconds", "Duration of the passes of each controller.", Histogram, runtime, operator},
		{"workqueue_depth", "Objects that wait for a pass, by controller.", Gauge, clientGo, operator},
		{"workqueue_queue_duration_seconds", "Time for which objects wait for a pass, by controller.", Histogram, clientGo, operator},
		{"controller_runtime_webhook_requests_total", "Requests to the webhooks, by path and HTTP code.", Counter, runtime, operator},
		{"controller_runtime_webhook_latency_seconds", "Duration of the requests to the webhooks, by path.", Histogram, runtime, operator},
		{"scheduler_pending_pods", "Pods that the scheduler knows and that have no node, by the queue that they are in.", Gauge, scheduler, []Program{Scheduler}},
		{"scheduler_scheduling_attempt_duration_seconds", "Duration of the scheduling cycles of pods, by profile and result.", Histogram, scheduler, []Program{Scheduler}},
		{"apiserver_admission_webhook_fail_open_count", "Requests that API servers admitted because they could not call a webhook, by the name of the webhook.", Counter, apiServer, []Program{APIServer}},
		{"apiserver_admission_webhook_rejection_count", "Requests that API servers refused because of a webhook, by its name and the code of its answer.", Counter, apiServer, []Program{APIServer}},
	}
}
