package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
)

// Names of spans. The operator writes the span of a job's start and most of its children; a scheduler that starts the
// job's pods together writes the span of that.
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
	// Outcome is Running if all replicas have run, Restarting if a replica ended before and starts again, and otherwise
	// the phase in which the job has ended.
	Outcome  = attribute.Key("t9k.job.outcome")
	Replicas = attribute.Key("t9k.job.replicas")
	Queue    = attribute.Key("t9k.queue.name")
	PodGroup = attribute.Key("t9k.podgroup.name")
	// Pods is the number of pods that were scheduled, and MinMember the number without which none was.
	Pods      = attribute.Key("t9k.podgroup.pods")
	MinMember = attribute.Key("t9k.podgroup.min_member")
	// WaitReason is the last reason for which the group waited.
	WaitReason = attribute.Key("t9k.podgroup.wait_reason")
)
