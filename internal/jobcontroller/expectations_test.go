package jobcontroller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// TestSuccessesAreKeptUntilACurrentStatusDoesNotNeedThem verifies that only a pass with the newest status discards a
// success.
func TestSuccessesAreKeptUntilACurrentStatusDoesNotNeedThem(t *testing.T) {
	pod := func(uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	}
	status := func(phase batch.ReplicaPhase, uids ...string) *batch.JobStatus {
		task := batch.Tasks{Type: "w"}
		for _, uid := range uids {
			task.Replicas = append(task.Replicas, batch.ReplicaStatus{UID: uid, Phase: phase})
		}
		return &batch.JobStatus{Tasks: []batch.Tasks{task}}
	}
	var s departures
	if open := s.open(status(batch.ReplicaRunning, "a"), nil); len(open) > 0 {
		t.Errorf("without successes %d are open", len(open))
	}
	for _, step := range []struct {
		what    string
		add     string
		status  *batch.JobStatus
		seen    []*corev1.Pod
		current bool
		want    []types.UID
	}{
		{"the status has it as running", "a", status(batch.ReplicaRunning, "a"), nil, true, []types.UID{"a"}},
		{"a second time", "", status(batch.ReplicaRunning, "a"), nil, true, []types.UID{"a"}},
		{"another pod exists, and no status names it", "b", status(batch.ReplicaRunning, "a"), []*corev1.Pod{pod("b")}, true, []types.UID{"a", "b"}},
		{"a late status names no pod", "", status(batch.ReplicaRunning), nil, false, nil},
		{"the status names both again", "", status(batch.ReplicaRunning, "a", "b"), nil, true, []types.UID{"a", "b"}},
		{"the status has one", "", status(batch.ReplicaSucceeded, "a"), []*corev1.Pod{pod("b")}, true, []types.UID{"b"}},
		{"a discarded success is not needed", "", status(batch.ReplicaRunning, "a", "b"), nil, true, []types.UID{"b"}},
		{"the status names another pod", "", status(batch.ReplicaRunning, "c"), nil, true, nil},
	} {
		if step.add != "" {
			s.addSuccess(pod(step.add))
			s.addGone(types.UID(step.add))
		}
		var got []types.UID
		for uid := range s.open(step.status, step.seen) {
			got = append(got, uid)
		}
		if slices.Sort(got); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v are open, want %v", step.what, got, step.want)
		}
		if step.current {
			s.prune()
		}
	}
	if n := len(s.succeeded) + len(s.gone); n != 0 {
		t.Errorf("%d are kept", n)
	}
}

func TestLastWrittenStatusCountsWhileTheCacheIsLate(t *testing.T) {
	job := func(version string) *batch.GenericJob {
		return &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	exp := &expectations{seenVersion: "1", written: job("2")}
	for _, step := range []struct{ cached, want string }{{"1", "2"}, {"1", "2"}, {"3", "3"}, {"1", "1"}} {
		if got := exp.newest(job(step.cached)).GetResourceVersion(); got != step.want {
			t.Errorf("version %s is the newest when the cache has %s, want %s", got, step.cached, step.want)
		}
	}
}

// TestHandlersAreNotForgottenBeforeTheCacheShowsTheJob verifies that a pass that does not find the job keeps what the
// pod handlers have received if the cache of jobs may be behind the cache of pods, and forgets a deleted job.
func TestHandlersAreNotForgottenBeforeTheCacheShowsTheJob(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "j"}
	for name, test := range map[string]struct {
		seen  bool
		after time.Duration
		want  time.Duration
	}{
		"new":           {after: time.Second, want: cacheLag - time.Second},
		"never seen":    {after: cacheLag},
		"seen and gone": {seen: true},
		"gone a while":  {seen: true, after: cacheLag},
	} {
		t.Run(name, func(t *testing.T) {
			c := testclock.NewFakePassiveClock(time.Now())
			s := newExpectationStore(c)
			if test.seen {
				s.of(key, "job").lastPass = c.Now()
			}
			s.noteSuccess(key, "job", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
			c.SetTime(c.Now().Add(test.after))
			if got := s.forget(key); got != test.want || (s.get(key) == nil) != (test.want == 0) {
				t.Errorf("the next pass comes after %s, want %s; expectations: %v", got, test.want, s.get(key))
			}
		})
	}
}

// TestPassAwaitsTheHandlerForEachPod verifies that a pass waits for the handler even after waiting in vain for the
// deletion of an earlier pod, which no watch of this process has shown.
func TestPassAwaitsTheHandlerForEachPod(t *testing.T) {
	now := time.Now()
	exp := newExpectations("job", now)
	for _, step := range []struct {
		after time.Duration
		uid   string
		want  bool
	}{{0, "a", true}, {vanishedWait, "a", false}, {0, "b", true}, {vanishedWait / 2, "b", true}, {vanishedWait / 2, "b", false}} {
		now = now.Add(step.after)
		seen := engine.Seen{Now: now, Status: &batch.JobStatus{Tasks: []batch.Tasks{{Replicas: []batch.ReplicaStatus{
			{UID: step.uid, Phase: batch.ReplicaRunning}}}}}}
		if got := exp.awaitsHandler(&seen); got != step.want {
			t.Errorf("pod %s: the pass waits: %t, want %t", step.uid, got, step.want)
		}
	}
}

// TestPassAwaitsTheHandlerOfPods verifies that a pass waits, for up to one second, until the handler has received the
// deletion of a pod that has left the cache, unless the pod had ended or its replica is Deleted. A pod that had not
// ended is unconfirmed until then, even after that second.
func TestPassAwaitsTheHandlerOfPods(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		phase  batch.ReplicaPhase
		cached bool
		heard  types.UID
		// want is true if the pass waits, and unconfirmed if it marks the pod as unconfirmed.
		want, unconfirmed bool
	}{
		"the cache has it":                   {phase: batch.ReplicaRunning, cached: true},
		"the handler is behind":              {phase: batch.ReplicaRunning, want: true, unconfirmed: true},
		"the handler is behind the creation": {phase: batch.ReplicaCreating, want: true, unconfirmed: true},
		"the handler has received it":        {phase: batch.ReplicaRunning, heard: "a"},
		"it has received another":            {phase: batch.ReplicaRunning, heard: "b", want: true, unconfirmed: true},
		"it had ended":                       {phase: batch.ReplicaFailed},
		"it is deleted by a pause":           {phase: batch.ReplicaDeleted, unconfirmed: true},
	} {
		t.Run(name, func(t *testing.T) {
			exp := newExpectations("job", now)
			seen := engine.Seen{Now: now, Status: &batch.JobStatus{Tasks: []batch.Tasks{{Replicas: []batch.ReplicaStatus{{UID: "a", Phase: test.phase}}}}}}
			if test.cached {
				seen.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "a"}}}
			}
			if test.heard != "" {
				exp.departed.addGone(test.heard)
			}
			if got := exp.awaitsHandler(&seen); got != test.want {
				t.Errorf("the pass waits: %t, want %t", got, test.want)
			}
			if seen.Now = now.Add(vanishedWait); exp.awaitsHandler(&seen) {
				t.Error("the pass waits for more than a second")
			}
			if got := seen.Unconfirmed["a"]; got != test.unconfirmed {
				t.Errorf("the pod is unconfirmed: %t, want %t", got, test.unconfirmed)
			}
		})
	}
}

func TestSuccessIsRecordedBeforeTheFirstPass(t *testing.T) {
	store, key := newExpectationStore(clock.RealClock{}), types.NamespacedName{Namespace: "ns", Name: "job"}
	store.noteSuccess(key, "job", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	if n := len(store.of(key, "job").departed.succeeded); n != 1 {
		t.Errorf("%d successes are recorded, want 1", n)
	}
}

func TestSuccessOfAnotherJobIsNotRecorded(t *testing.T) {
	store, key := newExpectationStore(clock.RealClock{}), types.NamespacedName{Namespace: "ns", Name: "job"}
	exp := store.of(key, "job")
	store.noteSuccess(key, "predecessor", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	if n := len(exp.departed.succeeded); n != 0 || store.of(key, "job") != exp {
		t.Errorf("%d successes are recorded, want 0", n)
	}
}

func TestPodsCountAsWrittenUntilTheCacheShowsThem(t *testing.T) {
	now := time.Now()
	pod := func(name, uid string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	}
	created := pod("new", "b")
	for name, test := range map[string]struct {
		cached []corev1.Pod
		after  time.Duration
		want   []string
	}{
		"the cache is late":            {[]corev1.Pod{pod("old", "a")}, 0, []string{"new b false", "old a true"}},
		"the cache shows the creation": {[]corev1.Pod{pod("new", "b"), pod("old", "a")}, 0, []string{"new b false", "old a true"}},
		"the cache shows a later pod":  {[]corev1.Pod{pod("new", "c")}, 0, []string{"new c false"}},
		"the lag is too long":          {[]corev1.Pod{pod("old", "a")}, cacheLag + time.Second, []string{"old a true"}},
	} {
		t.Run(name, func(t *testing.T) {
			exp := newExpectations("job", now)
			exp.created["new"] = madePod{&created, now.Add(cacheLag)}
			exp.deleted["a"] = now
			if left := exp.forgetAfter(now); left != cacheLag {
				t.Errorf("the next creation is discarded after %s, want %s", left, cacheLag)
			}
			var got []string
			for _, p := range exp.merge(test.cached, now.Add(test.after)) {
				got = append(got, fmt.Sprintf("%s %s %t", p.Name, p.UID, p.DeletionTimestamp != nil))
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("the pods are %q, want %q", got, test.want)
			}
		})
	}
}
