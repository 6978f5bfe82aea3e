package jobcontroller

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/tracing"
)

// startEnd describes how and when the start of a job ended.
type startEnd struct {
	at      time.Time
	outcome string
	// failure is the reason why the job did not start to run; empty if it did.
	failure string
}

// endOfStart returns how the start of a job ended: all replicas have run, a replica has ended before that and starts
// again, or the job has ended. It returns nil while the job starts. Later statuses of the job show an end too, because
// the job restarted, completed, or has run for at least half a second; startSpans relies on this to recognise the first
// one.
func endOfStart(s *batch.JobStatus) *startEnd {
	if s.CompletionTime != nil {
		end := &startEnd{at: s.CompletionTime.Time, outcome: string(s.Phase)}
		if c := conditionOf(s, batch.JobFailedCondition); c != nil && c.Status == metav1.ConditionTrue {
			end.failure = string(c.Reason)
		}
		return end
	}
	if s.Restarts > 0 {
		end := &startEnd{outcome: "Restarting", failure: "Restarted"}
		if s.Incident != nil {
			end.at, end.failure = s.Incident.StartTime.Time, incidentReason(s.Incident)
		}
		return end
	}
	c := conditionOf(s, batch.JobRunningCondition)
	if c == nil || s.RunSeconds == 0 && (c.Status != metav1.ConditionTrue || c.Reason != batch.ReasonReplicasRunning) {
		return nil // in debug mode too: RunSeconds does not count that time
	}
	return &startEnd{at: c.LastTransitionTime.Time, outcome: string(batch.JobRunning)}
}

// incidentReason returns the reason of an incident without the program's own message, which readers of traces may not
// be allowed to see.
func incidentReason(i *batch.Incident) string {
	switch {
	case i.Reason != "":
		return i.Reason
	case i.ExitCode != nil:
		return fmt.Sprintf("ExitCode%d", *i.ExitCode)
	}
	return "ReplicaEnded"
}

// startSpans returns the spans of a job's start if the written status is the first one that shows the end of the start,
// and nil otherwise. The times of the spans come from API objects and are in whole seconds. The t9k-scheduler writes
// the span for scheduling a gang.
func startSpans(job *engine.Job, created time.Time, old, written *batch.JobStatus, pods []*corev1.Pod) []tracing.Span {
	end := endOfStart(written)
	if end == nil || endOfStart(old) != nil {
		return nil
	}
	root := tracing.Span{Object: job.UID, Name: tracing.StartJob, Start: created, End: latest(created, end.at), Failure: end.failure, Attributes: []attribute.KeyValue{
		tracing.Namespace.String(job.Namespace), tracing.JobKind.String(job.Kind), tracing.JobName.String(job.Name), tracing.JobUID.String(string(job.UID)),
		tracing.Replicas.Int(int(written.Replicas)), tracing.Outcome.String(end.outcome)}}
	if job.Gang != nil {
		root.Attributes = append(root.Attributes, tracing.Queue.String(job.Gang.Queue))
	}
	spans := []tracing.Span{root}
	child := func(name string, from, to time.Time) {
		from, to = within(&root, from), within(&root, to)
		spans = append(spans, tracing.Span{Object: job.UID, Name: name, Parent: root.Name, Start: from, End: latest(from, to)})
	}
	begun := created
	if c := conditionOf(written, batch.JobPausedCondition); c != nil && c.Reason == batch.ReasonResumed && written.StartTime != nil {
		begun = written.StartTime.Time
	}
	made, bound, all := podTimes(pods)
	if len(pods) > 0 {
		child(tracing.CreatePods, begun, made)
	}
	if all && job.Gang == nil {
		child(tracing.SchedulePods, made, bound)
	}
	if all {
		child(tracing.StartPods, bound, root.End)
	}
	return spans
}

// podTimes returns when the last pod was created, when the last pod was bound to a node, and whether all pods have been
// bound.
func podTimes(pods []*corev1.Pod) (made, bound time.Time, all bool) {
	all = len(pods) > 0
	for _, pod := range pods {
		at := engine.BoundAt(pod)
		made, bound, all = latest(made, pod.CreationTimestamp.Time), latest(bound, at), all && !at.IsZero()
	}
	return made, bound, all
}

// within returns the time in the interval of a span that is nearest to t. A time may lie outside the interval, because
// clocks differ and a pod may have been replaced.
func within(s *tracing.Span, t time.Time) time.Time {
	if t.After(s.End) {
		return s.End
	}
	return latest(s.Start, t)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
