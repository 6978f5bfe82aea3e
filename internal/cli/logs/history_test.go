package logs

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// TestHistoryComesFromAnnotations verifies that the end of an earlier attempt is read from an event's annotation, not
// from its message, that events without a legible annotation are kept as they are, and that events about anything else
// are ignored.
func TestHistoryComesFromAnnotations(t *testing.T) {
	event := func(reason batch.Reason, message string, ends ...engine.ReplicaEnd) corev1.Event {
		e := corev1.Event{Reason: string(reason), Message: message, EventTime: metav1.NewMicroTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
		if ends != nil {
			data, err := json.Marshal(ends)
			if err != nil {
				t.Fatal(err)
			}
			e.Annotations = map[string]string{batch.AnnotationReplicaEnds: string(data)}
		}
		return e
	}
	limit, code := int32(2), int32(3)
	broken := event(batch.EventReplicaDisrupted, "broken")
	broken.Annotations = map[string]string{batch.AnnotationReplicaEnds: "{"}
	h := newHistory(&batch.JobStatus{}, []corev1.Event{
		event(batch.EventReplicaRestarted, "mnist-worker-0 is not meant here.",
			engine.ReplicaEnd{Replica: "mnist-worker-1", Restart: 1, Limit: &limit, StartFailure: `exec: "a, b": no such file`},
			engine.ReplicaEnd{Replica: "mnist-worker-10", Restart: 1, Limit: &limit, ExitCode: &code}),
		event(batch.EventReplicaDisrupted, "", engine.ReplicaEnd{Replica: "mnist-worker-10", Reason: "Evicted"}),
		event(batch.EventReplicaRestarted, "Restarting: mnist-worker-1 ended with exit code 3 (restart 1)."),
		broken,
		event(batch.EventJobStarted, "Starting 4 replicas.", engine.ReplicaEnd{Replica: "mnist-worker-1"}),
	})
	want := map[string][]string{
		"mnist-worker-1": {`2026-01-01T12:00:00Z ReplicaRestarted: mnist-worker-1 ended: its command cannot be started: exec: "a, b": no such file (restart 1 of 2)`},
		"mnist-worker-10": {"2026-01-01T12:00:00Z ReplicaRestarted: mnist-worker-10 ended with exit code 3 (restart 1 of 2)",
			"2026-01-01T12:00:00Z ReplicaDisrupted: mnist-worker-10 (Evicted)"},
	}
	if diff := cmp.Diff(want, h.ends); diff != "" {
		t.Error(diff)
	}
	var plain []string
	for i := range h.plain {
		plain = append(plain, h.plain[i].Message)
	}
	if diff := cmp.Diff([]string{"Restarting: mnist-worker-1 ended with exit code 3 (restart 1).", "broken"}, plain); diff != "" {
		t.Errorf("events without a legible annotation:\n%s", diff)
	}
}
