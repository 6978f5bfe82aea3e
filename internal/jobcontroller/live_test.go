package jobcontroller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestCacheDoesNotUndoLiveView: what the API server said of the pods holds until the cache is as new.
func TestCacheDoesNotUndoLiveView(t *testing.T) {
	pod := func(uid types.UID, version string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid, ResourceVersion: version}, Status: corev1.PodStatus{Phase: phase}}
	}
	ended, now := pod("a", "9", corev1.PodSucceeded), time.Now()
	for name, test := range map[string]struct {
		cached corev1.Pod
		after  time.Duration
		want   string // version and phase
	}{
		"older state":            {pod("a", "8", corev1.PodRunning), 0, "9 Succeeded"},
		"same state":             {pod("a", "9", corev1.PodSucceeded), 0, "9 Succeeded"},
		"newer state":            {pod("a", "12", corev1.PodFailed), 0, "12 Failed"},
		"pod that had gone":      {pod("b", "7", corev1.PodRunning), 0, ""},
		"pod that came later":    {pod("c", "11", corev1.PodPending), 0, "11 Pending"},
		"more digits are newer":  {pod("b", "100", corev1.PodRunning), 0, "100 Running"},
		"after the longest time": {pod("a", "8", corev1.PodRunning), cacheLag + time.Second, "8 Running"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &expectations{live: &liveView{version: "10", pods: map[types.UID]*corev1.Pod{"a": &ended}, until: now.Add(cacheLag)}}
			got := ""
			for _, p := range m.merge([]corev1.Pod{test.cached}, now.Add(test.after)) {
				got = p.ResourceVersion + " " + string(p.Status.Phase)
			}
			if got != test.want {
				t.Errorf("the pod is %q, want %q", got, test.want)
			}
		})
	}
}
