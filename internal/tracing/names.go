package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
)

// Names of spans. StartJob is the parent of a job's other spans. The operator records all of them, with one exception:
// the t9k-scheduler records SchedulePods of a gang.
const (
	StartJob     = "start job"
	CreatePods   = "create pods"
	SchedulePods = "schedule pods"
	StartPods    = "start pods"
)

// Attributes of spans. Namespace is an attribute of OpenTelemetry's semantic conventions.
const (
	Namespace = semconv.K8SNamespaceNameKey
	JobKind   = attribute.Key("t9k.job.kind")
	JobName   = attribute.Key("t9k.job.name")
	JobUID    = attribute.Key("t9k.job.uid")
	// Outcome is Running if all replicas have run, Restarting if a replica restarted before that, and otherwise the
	// phase in which the job has ended.
	Outcome  = attribute.Key("t9k.job.outcome")
	Replicas = attribute.Key("t9k.job.replicas")
	Queue    = attribute.Key("t9k.queue.name")
	PodGroup = attribute.Key("t9k.podgroup.name")
	// Pods is the number of pods that were scheduled, and MinMember is the minMember of the PodGroup.
	Pods      = attribute.Key("t9k.podgroup.pods")
	MinMember = attribute.Key("t9k.podgroup.min_member")
	// WaitReason is the last reason for which the group waited.
	WaitReason = attribute.Key("t9k.podgroup.wait_reason")
)
