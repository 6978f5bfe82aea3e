package board

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// clock observes a TensorBoard at successive times. Each observation starts from the status that the previous
// observation computed.
type clock struct {
	t    *testing.T
	now  time.Time
	tb   *tensorboard.TensorBoard
	idle Idleness
}

func newClock(t *testing.T) *clock {
	return &clock{t: t, now: start, idle: Idleness{After: time.Hour, SuspendAfter: 24 * time.Hour},
		tb: &tensorboard.TensorBoard{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "board"}}}
}

func readyPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

// probe advances the time by after, and observes a ready pod that reports its activity.
func (c *clock) probe(after time.Duration, requests int64, quiet time.Duration) Next {
	c.t.Helper()
	c.now = c.now.Add(after)
	return c.see(Seen{Now: c.now, Pod: readyPod(), Activity: &Activity{Requests: requests, QuietSeconds: quiet.Seconds()}})
}

func (c *clock) see(seen Seen) Next {
	next := Observe(c.tb, seen, c.idle)
	c.tb.Status = next.Status
	return next
}

func (c *clock) want(next Next, status metav1.ConditionStatus, reason string, probeAfter time.Duration, suspend bool) {
	c.t.Helper()
	got := condition(&next.Status, tensorboard.Idle)
	if got == nil || got.Status != status || got.Reason != reason {
		c.t.Errorf("condition Idle is %+v, want %s %s", got, status, reason)
	}
	if next.ProbeAfter != probeAfter || next.Suspend != suspend {
		c.t.Errorf("the next probe is after %s, want %s; suspend: %t, want %t", next.ProbeAfter, probeAfter, next.Suspend, suspend)
	}
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

func TestIdleTensorBoardIsSuspendedInTime(t *testing.T) {
	c := newClock(t)
	c.want(c.probe(0, 0, 0), no, tensorboard.ReasonActive, time.Hour, false)
	c.want(c.probe(59*time.Minute, 3, 20*time.Minute), no, tensorboard.ReasonActive, 40*time.Minute, false)
	c.want(c.probe(40*time.Minute, 3, time.Hour), yes, tensorboard.ReasonNoRequests, 5*time.Minute, false)
	since := c.now
	// A request resets the condition, and the time without requests starts again.
	c.want(c.probe(20*time.Hour, 4, time.Minute), no, tensorboard.ReasonActive, 59*time.Minute, false)
	c.want(c.probe(59*time.Minute, 4, time.Hour), yes, tensorboard.ReasonNoRequests, 5*time.Minute, false)
	c.want(c.probe(24*time.Hour-2*time.Minute, 4, 25*time.Hour-2*time.Minute), yes, tensorboard.ReasonNoRequests, 2*time.Minute, false)
	c.want(c.probe(2*time.Minute, 4, 25*time.Hour), yes, tensorboard.ReasonNoRequests, minWait, true)
	if since.Equal(condition(&c.tb.Status, tensorboard.Idle).LastTransitionTime.Time) {
		t.Error("the request in between did not change the transition time")
	}
	// A TensorBoard that was suspended and resumed counts as new, regardless of its earlier state.
	suspend := true
	c.tb.Spec.Suspend = &suspend
	c.want(c.see(Seen{Now: c.now}), no, tensorboard.ReasonSuspended, 0, false)
	suspend = false
	c.want(c.see(Seen{Now: c.now}), unknown, tensorboard.ReasonNotRunning, 0, false)
	c.want(c.probe(time.Minute, 0, 10*time.Second), no, tensorboard.ReasonActive, time.Hour-10*time.Second, false)
}

// TestIdleOutlivesPod verifies that a new pod, which has had no request, does not make an idle TensorBoard active.
func TestIdleOutlivesPod(t *testing.T) {
	c := newClock(t)
	c.want(c.probe(0, 7, 2*time.Hour), yes, tensorboard.ReasonNoRequests, 5*time.Minute, false)
	c.want(c.see(Seen{Now: c.now.Add(time.Minute)}), yes, tensorboard.ReasonNoRequests, 0, false) // between the pods
	c.want(c.probe(10*time.Hour, 0, time.Second), yes, tensorboard.ReasonNoRequests, 5*time.Minute, false)
	c.want(c.probe(14*time.Hour, 0, 14*time.Hour), yes, tensorboard.ReasonNoRequests, minWait, true)
	c.want(c.probe(0, 1, 0), no, tensorboard.ReasonActive, time.Hour, false)
}

// TestFailedProbeSuspendsNothing verifies that a TensorBoard whose activity is unknown is not suspended.
func TestFailedProbeSuspendsNothing(t *testing.T) {
	c := newClock(t)
	failed := func(after time.Duration) Next {
		c.now = c.now.Add(after)
		return c.see(Seen{Now: c.now, Pod: readyPod(), ProbeError: errors.New("no route")})
	}
	c.want(failed(0), unknown, tensorboard.ReasonProbeFailed, retry, false)
	c.want(failed(100*time.Hour), unknown, tensorboard.ReasonProbeFailed, retry, false)
	c.want(c.probe(0, 1, 2*time.Hour), yes, tensorboard.ReasonNoRequests, 5*time.Minute, false)
	c.want(failed(100*time.Hour), yes, tensorboard.ReasonProbeFailed, retry, false)
	c.want(c.probe(time.Second, 1, 102*time.Hour), yes, tensorboard.ReasonNoRequests, minWait, true)
}

func TestIdlenessCanBeDisabled(t *testing.T) {
	c := newClock(t)
	c.idle.SuspendAfter = 0
	c.probe(0, 1, 2*time.Hour)
	c.want(c.probe(1000*time.Hour, 1, 1002*time.Hour), yes, tensorboard.ReasonNoRequests, 5*time.Minute, false)
	c.idle.After = 0
	if next := c.probe(0, 1, 2000*time.Hour); condition(&next.Status, tensorboard.Idle) != nil || next.ProbeAfter != 0 || next.Suspend {
		t.Errorf("idleness is off, got %+v", next)
	}
}

func TestReadyReportsTheCause(t *testing.T) {
	waiting := func(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: statuses}}
	}
	ended := &corev1.ContainerStateTerminated{ExitCode: 2, Message: "no such option\n"}
	unplaced := waiting(corev1.PodPending)
	unplaced.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: `persistentvolumeclaim "logs" not found`}}
	starting := waiting(corev1.PodPending, corev1.ContainerStatus{Name: "tensorboard", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}})
	lacking := waiting(corev1.PodPending, corev1.ContainerStatus{Name: "tensorboard", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "keys" not found`}}})
	looping := waiting(corev1.PodRunning, corev1.ContainerStatus{Name: "tensorboard", RestartCount: 3,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: ended}})
	fetching := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
		Name: "fetch-0", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "fetching https://h/x: the server answers 404 Not Found"}}}}}}
	quota := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: small"}}}}
	for name, test := range map[string]struct {
		seen            Seen
		phase           tensorboard.Phase
		reason, message string
	}{
		"nothing yet":    {Seen{}, tensorboard.Pending, tensorboard.ReasonStarting, "It is being started."},
		"starting":       {Seen{Pod: starting}, tensorboard.Pending, tensorboard.ReasonStarting, "It is being started."},
		"running":        {Seen{Pod: readyPod()}, tensorboard.Running, tensorboard.ReasonRunning, "It answers requests."},
		"no claim":       {Seen{Pod: unplaced}, tensorboard.Pending, tensorboard.ReasonUnschedulable, `persistentvolumeclaim "logs" not found`},
		"no secret":      {Seen{Pod: lacking}, tensorboard.Pending, tensorboard.ReasonNotStarted, `container tensorboard: CreateContainerConfigError: secret "keys" not found`},
		"crashes":        {Seen{Pod: looping}, tensorboard.Failed, tensorboard.ReasonFailing, "container tensorboard ended with exit code 2: no such option"},
		"fetching fails": {Seen{Pod: fetching}, tensorboard.Failed, tensorboard.ReasonFailing, "container fetch-0 ended with exit code 1: fetching https://h/x: the server answers 404 Not Found"},
		"quota":          {Seen{Deployment: quota}, tensorboard.Failed, tensorboard.ReasonCreateRefused, "exceeded quota: small"},
		"refused":        {Seen{Refusal: &Refusal{"NameTaken", "taken"}, Pod: readyPod()}, tensorboard.Failed, tensorboard.ReasonNameTaken, "taken"},
	} {
		t.Run(name, func(t *testing.T) {
			tb := &tensorboard.TensorBoard{}
			test.seen.Now = start
			next := Observe(tb, test.seen, Idleness{})
			c := condition(&next.Status, tensorboard.Ready)
			if next.Status.Phase != test.phase || c.Reason != test.reason || c.Message != test.message {
				t.Errorf("got %s, %s: %s", next.Status.Phase, c.Reason, c.Message)
			}
			if (c.Status == yes) != (test.phase == tensorboard.Running) {
				t.Errorf("phase %s, Ready is %s", test.phase, c.Status)
			}
		})
	}
}

// TestTransitionTimeFollowsTheStatus verifies that the transition time changes only when the status of the condition
// changes.
func TestTransitionTimeFollowsTheStatus(t *testing.T) {
	c := newClock(t)
	at := func() time.Time { return condition(&c.tb.Status, tensorboard.Ready).LastTransitionTime.Time }
	c.probe(0, 0, 0)
	c.probe(time.Minute, 0, time.Minute)
	if !at().Equal(start) {
		t.Errorf("ready since %s, want %s", at(), start)
	}
	c.see(Seen{Now: start.Add(time.Hour)})
	if !at().Equal(start.Add(time.Hour)) {
		t.Errorf("not ready since %s", at())
	}
}

func TestChoose(t *testing.T) {
	pod := func(name string, age time.Duration, ready, ending bool) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-age))}}
		if ready {
			p.Status.Conditions = readyPod().Status.Conditions
		}
		if ending {
			p.DeletionTimestamp = &metav1.Time{Time: start}
		}
		return p
	}
	old, young := pod("old", time.Hour, true, false), pod("young", time.Minute, false, false)
	ending := pod("ending", time.Hour, true, true)
	for _, test := range []struct {
		want string
		pods []corev1.Pod
	}{
		{"old", []corev1.Pod{young, old, ending}},
		{"young", []corev1.Pod{ending, young}},
		{"", []corev1.Pod{ending}},
		{"", nil},
	} {
		got := ""
		if p := Choose(test.pods); p != nil {
			got = p.Name
		}
		if got != test.want {
			t.Errorf("Choose returned %q, want %q", got, test.want)
		}
	}
}
