package observed

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// EventTime returns the time at which an event was last seen. It reads events of both APIs, core/v1 and events.k8s.io.
func EventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}

// EventCount returns how often an event was seen; 0 if the event does not contain the number.
func EventCount(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return e.Count
}

// Ends returns the ends of replicas that an event lists. about is true if the event is about the replacement of
// replicas. listed is true if it lists their ends; an event of an older operator has only a message.
func Ends(e *corev1.Event) (ends []engine.ReplicaEnd, about, listed bool) {
	switch batch.Reason(e.Reason) {
	case batch.EventReplicaRestarted, batch.EventReplicaDisrupted:
	default:
		return nil, false, false
	}
	if err := json.Unmarshal([]byte(e.Annotations[batch.AnnotationReplicaEnds]), &ends); err != nil {
		return nil, true, false
	}
	return ends, true, true
}
