package jobcontroller

import (
	"slices"
	"strings"
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
		"pod that was replaced":    {pod("p", "b", "7", corev1.PodRunning), 0, "9 Succeeded"},
		"pod that was deleted":     {pod("q", "b", "7", corev1.PodRunning), 0, "7 Running, 9 Succeeded"},
		"pod that came later":      {pod("p", "c", "11", corev1.PodPending), 0, "11 Pending"},
		"version with more digits": {pod("p", "b", "100", corev1.PodRunning), 0, "100 Running"},
		"after the longest time":   {pod("p", "a", "8", corev1.PodRunning), cacheLag + time.Second, "8 Running"},
	} {
		t.Run(name, func(t *testing.T) {
			view := &liveView{version: "10", pods: map[types.UID]*corev1.Pod{"a": &ended},
				unshown: map[types.UID]*corev1.Pod{"a": &ended}, names: map[string]types.UID{"p": "a"}, until: now.Add(cacheLag)}
			exp := &expectations{live: view}
			var got []string
			for _, p := range exp.merge([]corev1.Pod{test.cached}, now.Add(test.after)) {
				got = append(got, p.ResourceVersion+" "+string(p.Status.Phase))
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("the pods are %q, want %q", text, test.want)
			}
		})
	}
}

// TestPodThatOnlyALiveViewShowedExists verifies that a pod which the cache has not shown yet counts as existing after a
// live view has shown it, until the handler has received its deletion or the cache should have shown it, and that a
// pass follows at that time.
func TestPodThatOnlyALiveViewShowedExists(t *testing.T) {
	pod, now := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "a", ResourceVersion: "9"}}, time.Now()
	for name, test := range map[string]struct {
		change func(exp *expectations)
		after  time.Duration
		want   int
		wakes  bool
	}{
		"not shown yet":   {change: func(*expectations) {}, want: 1, wakes: true},
		"shown meanwhile": {change: func(exp *expectations) { exp.merge([]corev1.Pod{*pod}, now) }},
		"gone":            {change: func(exp *expectations) { exp.departed.addGone("a") }},
		"replaced by this process": {change: func(exp *expectations) {
			exp.created["p"] = madePod{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "b"}}, now.Add(cacheLag)}
		}, want: 1, wakes: true},
		"after the longest time": {change: func(*expectations) {}, after: cacheLag + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			exp := newExpectations("job", now)
			exp.live = &liveView{version: "10", unshown: map[types.UID]*corev1.Pod{"a": pod}, names: map[string]types.UID{"p": "a"}, until: now.Add(cacheLag)}
			test.change(exp)
			if got := exp.merge(nil, now.Add(test.after)); len(got) != test.want {
				t.Errorf("there are %d pods, want %d", len(got), test.want)
			}
			if wakes := exp.forgetAfter(now.Add(test.after)) > 0; wakes != test.wakes {
				t.Errorf("a pass follows: %t, want %t", wakes, test.wakes)
			}
		})
	}
}

// TestPodStaysUntilTheCacheShowsThatItHasGone verifies that a cached pod that a live read lacks remains in the list of
// pods and counts as vanished, because only the watch shows how the pod ended. Neither holds if another pod has its
// name, and a pod that is being deleted does not count as vanished.
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
