package recorder

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

func podOf(job, uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "j-w-0", UID: uid, ResourceVersion: "1",
		Labels:          map[string]string{batch.LabelJobName: "j", batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "w", batch.LabelReplicaRank: "0", batch.LabelReplicaAttempt: "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Name: "j", UID: job, Controller: new(true)}}}}
}

func warningOf(namespace, name string, pod types.UID) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "7"}, Type: corev1.EventTypeWarning, Reason: name,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "j-w-0", UID: pod}}
}

// TestWarningsAboutPods verifies that a warning is recorded with the job of its pod, whether the pod or the warning is
// seen first, that a warning in another namespace than the pod's is ignored, and that the number of kept warnings about
// unknown pods is limited.
func TestWarningsAboutPods(t *testing.T) {
	r := &Recorder{more: make(chan struct{}, 1), attempts: map[string]*attempt{}, open: map[string]bool{}}
	r.room = sync.NewCond(&r.mu)
	recorded := func() map[string]string {
		got := map[string]string{}
		for _, e := range r.take().Events {
			got[e.UID] = e.Job
		}
		return got
	}
	ctx := t.Context()
	for i := range 2 * maxEarly {
		r.warning(ctx, warningOf("ns", fmt.Sprint("of no job ", i), types.UID(fmt.Sprint("of no job ", i))))
	}
	r.warning(ctx, warningOf("ns", "early", "pod"))
	r.warning(ctx, warningOf("other", "forged and early", "pod"))
	r.pod(ctx, podOf("job", "pod"), false)
	r.warning(ctx, warningOf("ns", "late", "pod"))
	r.warning(ctx, warningOf("other", "forged", "pod"))
	if diff := cmp.Diff(map[string]string{"pod/early": "job", "pod/late": "job"}, recorded()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if len(r.early) != maxEarly {
		t.Errorf("%d warnings wait for their pods, want %d", len(r.early), maxEarly)
	}
}
