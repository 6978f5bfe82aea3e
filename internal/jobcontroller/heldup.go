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

// lookAgain is the least time between two looks at the events of a job's pods.
const lookAgain = 10 * time.Second

// warningLooks bounds the looks at events over all jobs, per second. For each the API server reads all events of the namespace.
const warningLooks = 5

// lastWarning is the last warning about the first pod that is held up, or nil. Events are not watched: there are too many of
// them, and few say anything that a status does not.
func (r *reconciler) lastWarning(ctx context.Context, seen engine.Seen, m *memory) (*engine.Warning, error) {
	pod := firstHeldUp(seen)
	if pod == nil {
		m.warning = nil
		return nil, nil
	}
	if m.warning != nil && m.warning.Pod != pod.Name {
		m.warning = nil
	}
	if seen.Now.Before(m.lookedAt.Add(lookAgain)) || !r.looks.Allow() {
		return m.warning, nil
	}
	defer r.looks.since(time.Now())
	var events corev1.EventList
	if err := r.live.List(ctx, &events, client.InNamespace(pod.Namespace),
		client.MatchingFields{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}); err != nil {
		return nil, fmt.Errorf("listing the events of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	m.lookedAt, m.warning = seen.Now, nil
	var latest time.Time
	for i := range events.Items {
		if e := &events.Items[i]; !e.LastTimestamp.Time.Before(latest) {
			latest, m.warning = e.LastTimestamp.Time, &engine.Warning{Pod: pod.Name, Message: e.Message}
		}
	}
	return m.warning, nil
}

func firstHeldUp(seen engine.Seen) *corev1.Pod {
	var first *corev1.Pod
	for _, pod := range seen.Pods {
		at := engine.HeldUp(pod)
		if at.IsZero() || seen.Now.Before(at) {
			continue
		}
		if first == nil || pod.Name < first.Name {
			first = pod
		}
	}
	return first
}
