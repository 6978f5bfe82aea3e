package jobcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/engine"
)

// +kubebuilder:rbac:groups="",resources=events,verbs=list

// eventReadInterval is the minimum time between two reads of the events of a job's pods.
const eventReadInterval = 10 * time.Second

// eventReadsPerSecond limits the reads of events over all jobs. For each read, the API server goes through all events
// of the namespace.
const eventReadsPerSecond = 5

// failedScheduling is the reason of a scheduler's event about a pod that it cannot bind to a node.
const failedScheduling = "FailedScheduling"

// lastWarning returns the last warning about the first pod whose start is overdue; nil if there is none.
// FailedScheduling events do not count. It reads events at most once in eventReadInterval for each job, and otherwise
// returns what it last read about the pod. The operator does not watch events, because there are too many and most of
// them add nothing to the statuses.
func (o *observer) lastWarning(ctx context.Context, seen engine.Seen, exp *expectations) (*engine.Warning, error) {
	pod := firstStalledStart(seen)
	if pod == nil {
		exp.warning = nil
		return nil, nil
	}
	if exp.warnedPod != pod.UID { // a pod that replaces another one has the same name
		exp.warning = nil
	}
	if seen.Now.Before(exp.eventsReadAt.Add(eventReadInterval)) || !o.eventReads.AllowN(o.clock.Now(), 1) {
		return exp.warning, nil
	}
	began := o.clock.Now()
	defer func() { o.eventReads.charge(began, o.clock.Now()) }()
	var events corev1.EventList
	if err := o.live.List(ctx, &events, client.InNamespace(pod.Namespace),
		client.MatchingFields{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}); err != nil {
		return nil, fmt.Errorf("listing the events of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	exp.eventsReadAt, exp.warning, exp.warnedPod = seen.Now, nil, pod.UID
	var latest time.Time
	for i := range events.Items {
		// The pod has a node by now, so a FailedScheduling event no longer applies.
		if e := &events.Items[i]; e.Reason != failedScheduling && !e.LastTimestamp.Time.Before(latest) {
			latest, exp.warning = e.LastTimestamp.Time, &engine.Warning{Pod: pod.Name, Message: e.Message}
		}
	}
	return exp.warning, nil
}

// firstStalledStart returns the first pod by name whose start is overdue, or nil.
func firstStalledStart(seen engine.Seen) *corev1.Pod {
	var first *corev1.Pod
	for _, pod := range seen.Pods {
		at := engine.StartOverdue(pod)
		if at.IsZero() || seen.Now.Before(at) {
			continue
		}
		if first == nil || pod.Name < first.Name {
			first = pod
		}
	}
	return first
}
