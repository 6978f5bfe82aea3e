package jobcontroller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestLateCacheDoesNotUndoLiveView(t *testing.T) {
	pod := func(name string, uid types.UID, version string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: version}, Status: corev1.PodStatus{Phase: phase}}
	}
	ended, now := pod("p", "a", "9", corev1.PodSucceeded), time.Now()
	for name, test := range map[string]struct {
		cached corev1.Pod
		after  time.Duration
		want   string // version and phase
	}{
		"older state":              {pod("p", "a", "8", corev1.PodRunning), 0, "9 Succeeded"},
		"same state":               {pod("p", "a", "9", corev1.PodSucceeded), 0, "9 Succeeded"},
		"newer state":              {pod("p", "a", "12", corev1.PodFailed), 0, "12 Failed"},
		"pod that was replaced":    {pod("p", "b", "7", corev1.PodRunning), 0, ""},
		"pod that was deleted":     {pod("q", "b", "7", corev1.PodRunning), 0, "7 Running"},
		"pod that came later":      {pod("p", "c", "11", corev1.PodPending), 0, "11 Pending"},
		"version with more digits": {pod("p", "b", "100", corev1.PodRunning), 0, "100 Running"},
		"after the longest time":   {pod("p", "a", "8", corev1.PodRunning), cacheLag + time.Second, "8 Running"},
	} {
		t.Run(name, func(t *testing.T) {
			view := &liveView{version: "10", pods: map[types.UID]*corev1.Pod{"a": &ended}, names: map[string]types.UID{"p": "a"}, until: now.Add(cacheLag)}
			exp := &expectations{live: view}
			got := ""
			for _, p := range exp.merge([]corev1.Pod{test.cached}, now.Add(test.after)) {
				got = p.ResourceVersion + " " + string(p.Status.Phase)
			}
			if got != test.want {
				t.Errorf("the pod is %q, want %q", got, test.want)
			}
		})
	}
}

// TestPodStaysUntilTheCacheShowsThatItHasGone verifies that a pod that a live read lacks remains until the watch
// delivers its deletion, because only the watch shows how the pod ended.
func TestPodStaysUntilTheCacheShowsThatItHasGone(t *testing.T) {
	pod := func(name string, uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	view := &liveView{pods: map[types.UID]*corev1.Pod{"a": pod("p", "a")}, names: map[string]types.UID{"p": "a"}}
	var got []types.UID
	for _, p := range view.list([]*corev1.Pod{pod("p", "a"), pod("p", "replaced"), pod("q", "gone")}) {
		got = append(got, p.UID)
	}
	if want := []types.UID{"a", "gone"}; !slices.Equal(got, want) {
		t.Errorf("the pods are %v, want %v", got, want)
	}
	if gone := view.vanished([]*corev1.Pod{pod("q", "gone")}); !slices.Equal(gone, []types.UID{"gone"}) {
		t.Error("the deleted pod has not been removed")
	}
	deleted := pod("q", "deleted")
	deleted.DeletionTimestamp = new(metav1.Now())
	if len(view.vanished([]*corev1.Pod{pod("p", "a"), pod("p", "replaced"), deleted})) > 0 {
		t.Error("a pod was removed that exists, was replaced or is being deleted")
	}
}
