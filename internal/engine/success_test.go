package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestDeletedPodThatSucceededCounts verifies that a pod whose success was observed before its deletion has succeeded,
// whether or not it still exists. A success that was not observed does not count. Nor does the success of a pod that no
// longer exists if its role restarts after successes.
func TestDeletedPodThatSucceededCounts(t *testing.T) {
	for name, test := range map[string]struct {
		gone, watched, onSuccess bool
		want                     batch.JobPhase
	}{
		"gone":                           {gone: true, watched: true, want: batch.JobSucceeded},
		"gone, unobserved":               {gone: true, want: batch.JobPending},
		"ending":                         {watched: true, want: batch.JobSucceeded},
		"ending, unobserved":             {want: batch.JobPending},
		"gone, with restarts on success": {gone: true, watched: true, onSuccess: true, want: batch.JobPending},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, 1, 3)
			p.job.Roles[0].Restart.OnSuccess = test.onSuccess
			p.pass().run(0).after(2*time.Second).pass().want(batch.JobRunning, 0)
			pod := p.exit(0, 0).pod(0)
			if test.watched {
				p.seen.Succeeded = map[types.UID]*corev1.Pod{pod.UID: pod.DeepCopy()}
			}
			if test.gone {
				delete(p.pods, pod.Name)
			} else { // as the API server shows a pod that it deletes immediately
				now, none := metav1.NewTime(p.now), int64(0)
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &none
			}
			p.pass().after(2*time.Second).pass().want(test.want, 0)
			if test.want == batch.JobSucceeded && p.uids > 1 {
				t.Errorf("%d pods were created", p.uids)
			}
		})
	}
}

// TestSucceededUndeletedIgnoresDebugAndDisruption verifies that SucceededUndeleted returns true for a pod that has
// succeeded, and false for one that runs, is in debug mode or is being deleted.
func TestSucceededUndeletedIgnoresDebugAndDisruption(t *testing.T) {
	p := newPlay(t, 1, 3)
	pod := p.pass().run(0).pod(0)
	if SucceededUndeleted(pod) {
		t.Error("a running pod counts as succeeded")
	}
	if p.exit(0, 0); !SucceededUndeleted(pod) {
		t.Error("a succeeded pod does not count")
	}
	debugged, deleted := pod.DeepCopy(), pod.DeepCopy()
	debugged.Annotations[batch.AnnotationRunMode] = string(batch.RunDebug)
	deleted.DeletionTimestamp = &metav1.Time{Time: p.now}
	if SucceededUndeleted(debugged) || SucceededUndeleted(deleted) {
		t.Error("a debugging pod, or a pod that is being deleted, counts")
	}
}

// TestRecordedEndKeepsItsExitCode verifies that the recorded exit code still decides if a new leader observes an older
// state of the pod.
func TestRecordedEndKeepsItsExitCode(t *testing.T) {
	p := newPlay(t, 2, 3)
	p.job.Roles[0].Restart.FailCodes = []CodeRange{{First: 1, Last: 1}}
	p.job.Success = []Rule{{Text: "{}", Members: []Member{{Role: 0, Rank: 0}}}}
	p.pass().run(0, 1).after(2*time.Second).pass().want(batch.JobRunning, 0)
	before := p.pod(1).DeepCopy()
	p.after(2*time.Second).exit(1, 1).pass()
	p.pods[before.Name] = before
	p.after(2 * time.Second).pass()
	if len(p.plan.Delete)+len(p.plan.Pods) > 0 || p.stat.Restarts > 0 {
		t.Errorf("the replica restarts: %+v", p.stat.Tasks)
	}
}

// TestRecordedEndOutlivesAnOlderPod verifies that a recorded end counts even if a new leader's cache still shows the
// pod before the one that ended. Both have the same name, so the older pod no longer exists.
func TestRecordedEndOutlivesAnOlderPod(t *testing.T) {
	for name, test := range map[string]struct {
		code     int32
		paused   bool
		restarts int32
	}{
		"a success":         {code: 0, restarts: 1},
		"a failure":         {code: 1, restarts: 2},
		"a success, paused": {code: 0, paused: true, restarts: 1},
		"a failure, paused": {code: 1, paused: true, restarts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, 2, 3)
			p.pass().run(0, 1).after(2*time.Second).pass().exit(0, 1)
			older := p.pod(0).DeepCopy()
			p.pass().after(2*time.Second).pass().run(0).after(2*time.Second).pass().want(batch.JobRunning, 1)
			p.exit(0, test.code)
			p.job.Pause = test.paused
			p.after(2 * time.Second).pass()
			recorded, ended := p.stat.Tasks[0].Replicas[0], p.pods[older.Name]

			p.pods[older.Name] = older
			p.after(2 * time.Second).pass()
			if r := p.stat.Tasks[0].Replicas[0]; (r.Phase != recorded.Phase || r.UID != recorded.UID) && r.RestartCount == recorded.RestartCount {
				t.Errorf("the record was %+v and is %+v", recorded, r)
			}

			if p.pods[older.Name] = ended; ended == nil {
				delete(p.pods, older.Name)
			}
			p.job.Pause = false
			for range 4 {
				p.after(time.Minute).pass().runAll()
			}
			if r := p.stat.Tasks[0].Replicas[0]; r.RestartCount != test.restarts || (r.Phase == batch.ReplicaSucceeded) != (test.code == 0) {
				t.Errorf("the replica is %+v, want %d restarts", r, test.restarts)
			}
		})
	}
}
