package writer

import (
	"errors"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func evicted(t *testing.T, cause string) int {
	t.Helper()
	var m dto.Metric
	if err := EvictedPods.WithLabelValues(cause).Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.Counter.GetValue())
}

// TestEvictionsCountPodsOnce verifies that the metric counts pods, not requests: the planner repeats an eviction until
// its cache shows the first one.
func TestEvictionsCountPodsOnce(t *testing.T) {
	seen := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
	terminating := seen.DeepCopy()
	now := metav1.Now()
	terminating.DeletionTimestamp, terminating.Finalizers = &now, []string{"example.com/keep"}
	for name, c := range map[string]struct {
		actual        *corev1.Pod
		times, counts int
	}{
		"running":                       {seen, 1, 1},
		"running, and asked for twice":  {seen, 2, 1},
		"terminating, which is unknown": {terminating, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(c.actual)
			client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), terminating, "ns")
			})
			w, before := New(nil, client, nil, nil), evicted(t, t.Name())
			for range c.times {
				if err := w.evict(t.Context(), seen.UID, eviction{seen, "m", t.Name()}); err != nil {
					t.Fatal(err)
				}
			}
			if got := evicted(t, t.Name()) - before; got != c.counts {
				t.Errorf("counted %d evictions, want %d", got, c.counts)
			}
		})
	}
}

// TestEvictionSparesNamesake verifies that a pod with the same name as the evicted pod is neither marked nor deleted.
func TestEvictionSparesNamesake(t *testing.T) {
	seen := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if patch := string(a.(k8stesting.PatchAction).GetPatch()); !strings.Contains(patch, `"uid":"1"`) {
			t.Errorf("the patch names no UID: %s", patch)
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("the UID in the precondition is another one"))
	})
	if err := New(nil, client, nil, nil).evict(t.Context(), seen.UID, eviction{seen, "m", t.Name()}); err != nil {
		t.Error(err)
	}
	for _, a := range client.Actions() {
		if a.Matches("delete", "pods") {
			t.Error("the pod was deleted")
		}
	}
	if n := evicted(t, t.Name()); n != 0 {
		t.Errorf("counted %d evictions", n)
	}
}
