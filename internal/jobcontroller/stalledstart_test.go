package jobcontroller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/internal/engine"
)

// warnings is an API server whose lists of events contain one warning with this message.
type warnings struct {
	client.Reader
	message string
}

func (w *warnings) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.EventList).Items = []corev1.Event{{Reason: "FailedMount", Message: w.message}}
	return nil
}

// TestWarningBelongsToOnePod verifies that the warning about a pod is kept between two reads of events, and does not
// apply to another pod, even if the other pod has the same name.
func TestWarningBelongsToOnePod(t *testing.T) {
	now := time.Now()
	pod := func(name string, uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
			Spec: corev1.PodSpec{NodeName: "n"}}
	}
	for name, next := range map[string]struct {
		pod   *corev1.Pod
		after time.Duration
		want  string
	}{
		"the same pod":              {pod("p", "1"), 0, "no volume"},
		"the same pod, read again":  {pod("p", "1"), eventReadInterval, "no image"},
		"a pod that replaces it":    {pod("p", "2"), 0, ""},
		"another pod":               {pod("q", "2"), 0, ""},
		"another pod, read as well": {pod("q", "2"), eventReadInterval, "no image"},
	} {
		t.Run(name, func(t *testing.T) {
			api, exp := &warnings{message: "no volume"}, &expectations{}
			o := &observer{live: api, eventReads: newLimiter(eventReadsPerSecond), clock: clock.RealClock{}}
			warning := func(pod *corev1.Pod, at time.Time) string {
				w, err := o.lastWarning(t.Context(), engine.Seen{Now: at, Pods: []*corev1.Pod{pod}}, exp)
				if err != nil {
					t.Fatal(err)
				}
				if w == nil {
					return ""
				}
				return w.Pod + ": " + w.Message
			}
			if got := warning(pod("p", "1"), now); got != "p: no volume" {
				t.Fatalf("the warning is %q", got)
			}
			api.message = "no image"
			want := next.want
			if want != "" {
				want = next.pod.Name + ": " + want
			}
			if got := warning(next.pod, now.Add(next.after)); got != want {
				t.Errorf("the warning is %q, want %q", got, want)
			}
		})
	}
}
