package archive

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

var begin = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }

func stamp(seconds int) metav1.Time { return metav1.NewTime(at(seconds)) }

// pod returns a pod that was bound after one second and requests two GPUs.
func pod(change func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "j-w-3", Namespace: "ns", UID: "p", ResourceVersion: "7", CreationTimestamp: stamp(0),
		Labels:          map[string]string{batch.LabelJobName: "j", batch.LabelJobKind: "GenericJob", batch.LabelReplicaType: "w", batch.LabelReplicaRank: "3", batch.LabelReplicaAttempt: "2"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: batch.GroupVersion.String(), Kind: "GenericJob", Name: "j", UID: "job", Controller: &yes}}}}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "open sesame"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: stamp(1)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(2)}}}}
	if change != nil {
		change(p)
	}
	return p
}

func ended(phase corev1.PodPhase, code int32, reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = phase
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: stamp(2), FinishedAt: stamp(9), ExitCode: code, Reason: reason}}
	}
}

func disrupted(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: stamp(5)})
}

func TestAttemptEndsAsItsPodDid(t *testing.T) {
	code := func(c int32) *int32 { return &c }
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		outcome Outcome
		cause   string
		code    *int32
		end     time.Time
	}{
		{name: "it runs", pod: pod(nil)},
		{name: "it succeeded", pod: pod(ended(corev1.PodSucceeded, 0, "Completed")), outcome: Succeeded, code: code(0), end: at(9)},
		{name: "it failed", pod: pod(ended(corev1.PodFailed, 137, "OOMKilled")), outcome: Failed, cause: "OOMKilled", code: code(137), end: at(9)},
		{name: "a container ended and others run", pod: pod(func(p *corev1.Pod) {
			ended(corev1.PodRunning, 1, "Error")(p)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "other", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		})},
		{name: "it was evicted", pod: pod(func(p *corev1.Pod) {
			ended(corev1.PodFailed, 143, "Error")(p)
			disrupted(p)
		}), outcome: Evicted, cause: "PreemptionByScheduler", code: code(143), end: at(9)},
		{name: "it was deleted, and its container ended", pod: pod(func(p *corev1.Pod) {
			ended(corev1.PodFailed, 143, "Error")(p)
			deleted(8, 30)(p)
		}), outcome: Stopped, code: code(143), end: at(9)},
		{name: "it was deleted, and its container ended well", pod: pod(func(p *corev1.Pod) {
			ended(corev1.PodSucceeded, 0, "Completed")(p)
			deleted(9, 30)(p)
		}), outcome: Stopped, code: code(0), end: at(9)},
		{name: "it failed, and was deleted before its kubelet said so", pod: pod(func(p *corev1.Pod) {
			ended(corev1.PodFailed, 1, "Error")(p)
			deleted(10, 30)(p)
		}), outcome: Failed, cause: "Error", code: code(1), end: at(9)},
		{name: "it failed, and was deleted then", pod: pod(func(p *corev1.Pod) {
			ended(corev1.PodFailed, 1, "Error")(p)
			deleted(9, 0)(p)
		}), outcome: Failed, cause: "Error", code: code(1), end: at(9)},
		{name: "the kubelet refused it", pod: pod(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.ContainerStatuses = corev1.PodFailed, "UnexpectedAdmissionError", nil
		}), outcome: Evicted, cause: "UnexpectedAdmissionError", end: at(1)},
		{name: "its sidecar was stopped after the main container succeeded", pod: pod(sidecarStopped(0)), outcome: Succeeded, code: code(0), cause: "", end: at(12)},
		{name: "its sidecar was stopped after the main container failed", pod: pod(sidecarStopped(3)), outcome: Failed, cause: "Error", code: code(3), end: at(12)},
		{name: "its main container succeeded, and its sidecar runs", pod: pod(func(p *corev1.Pod) {
			sidecarStopped(0)(p)
			p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(2)}}
		})},
		{name: "it was deleted while its sidecar ran after the main container", pod: pod(func(p *corev1.Pod) {
			sidecarStopped(0)(p)
			deleted(11, 30)(p)
		}), outcome: Succeeded, code: code(0), end: at(12)},
		{name: "it was deleted, and a container that does not count had ended", pod: pod(func(p *corev1.Pod) {
			sidecarStopped(143)(p)
			p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = stamp(5)
			deleted(8, 30)(p)
		}), outcome: Stopped, code: code(143), end: at(9)},
		{name: "its init container failed", pod: pod(initFailed), outcome: Failed, cause: "init container setup", code: code(4), end: at(2)},
	} {
		a, err := AttemptOf(tc.pod)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if a.Outcome != tc.outcome || a.Cause != tc.cause || !cmp.Equal(a.ExitCode, tc.code) || !a.Ended.Equal(tc.end) {
			t.Errorf("%s: %q, %q, %v, %s", tc.name, a.Outcome, a.Cause, a.ExitCode, a.Ended)
		}
		if a.Job != "job" || a.Role != "w" || a.Rank != 3 || a.Number != 2 || a.Version != 7 || !a.Scheduled.Equal(at(1)) {
			t.Errorf("%s: %+v", tc.name, a)
		}
		if bytes.Contains(a.Pod, []byte("sesame")) {
			t.Errorf("%s: the pod keeps values of variables: %s", tc.name, a.Pod)
		}
	}
}

// sidecarStopped returns a function that changes a pod into a pod of a training job. Its main container exited with
// code at second 9, and the operator then stopped its sidecar at second 12.
func sidecarStopped(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		ended(corev1.PodFailed, code, map[bool]string{true: "Completed", false: "Error"}[code == 0])(p)
		p.Labels[batch.LabelJobKind], p.OwnerReferences[0].Kind = "PyTorchTrainingJob", "PyTorchTrainingJob"
		p.Spec.ActiveDeadlineSeconds, p.Status.Reason = new(int64(1)), "DeadlineExceeded"
		p.Spec.Containers = append([]corev1.Container{{Name: "proxy"}}, p.Spec.Containers...)
		p.Spec.Containers[1].Name, p.Status.ContainerStatuses[0].Name = "pytorch", "pytorch"
		p.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "proxy", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			StartedAt: stamp(2), FinishedAt: stamp(12), ExitCode: 137, Reason: "Error"}}}}, p.Status.ContainerStatuses...)
	}
}

// initFailed changes a pod into a pod of a training job whose init container failed, so that no other container
// started.
func initFailed(p *corev1.Pod) {
	p.Labels[batch.LabelJobKind], p.OwnerReferences[0].Kind = "PyTorchTrainingJob", "PyTorchTrainingJob"
	p.Status.Phase = corev1.PodFailed
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		StartedAt: stamp(1), FinishedAt: stamp(2), ExitCode: 4, Reason: "Error"}}}}
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
}

// deleted returns a function that requests the deletion of a pod at second after, with a grace period of grace seconds.
func deleted(after int, grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(stamp(after+int(grace))), &grace
	}
}

// TestStoppedAttemptStaysStopped verifies that an attempt that was stopped keeps this outcome, although the last
// version of its pod no longer shows that the deletion ended it.
func TestStoppedAttemptStaysStopped(t *testing.T) {
	killed, confirmed := pod(ended(corev1.PodFailed, 143, "Error")), pod(ended(corev1.PodFailed, 143, "Error"))
	deleted(8, 30)(killed)
	deleted(10, 0)(confirmed)
	last, err := AttemptOf(killed)
	if err != nil {
		t.Fatal(err)
	}
	now, err := AttemptOf(confirmed)
	if err != nil {
		t.Fatal(err)
	}
	if now.Follow(last); now.Outcome != Stopped || now.Cause != "" || !now.Ended.Equal(at(9)) {
		t.Errorf("it is %s, %q, at %s", now.Outcome, now.Cause, now.Ended)
	}
	failed, err := AttemptOf(confirmed)
	if err != nil {
		t.Fatal(err)
	}
	if failed.Follow(&Attempt{}); failed.Outcome != Failed {
		t.Errorf("an attempt that failed is %s", failed.Outcome)
	}
}

func TestDeletedPodEndsItsAttempt(t *testing.T) {
	deleting := func(p *corev1.Pod) { now := stamp(40); p.DeletionTimestamp = &now }
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		inTime  bool
		outcome Outcome
		end     time.Time
	}{
		{"its deletion was seen", pod(nil), true, Stopped, at(50)},
		{"its containers had ended", pod(func(p *corev1.Pod) {
			deleting(p)
			ended(corev1.PodRunning, 143, "Error")(p)
		}), true, Stopped, at(9)},
		{"it was found missing", pod(nil), false, Lost, at(50)},
		{"it was found missing after somebody deleted it", pod(deleting), false, Stopped, at(40)},
		{"it was evicted", pod(disrupted), true, Evicted, at(50)},
		{"its main container had succeeded, and its sidecar ran", pod(func(p *corev1.Pod) {
			sidecarStopped(0)(p)
			deleted(20, 30)(p)
			p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}), true, Succeeded, at(50)},
		{"it had succeeded before", pod(ended(corev1.PodSucceeded, 0, "")), true, Succeeded, at(9)},
	} {
		a, err := AttemptOf(tc.pod)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if a.MarkDeleted(tc.pod, at(50), tc.inTime); a.Outcome != tc.outcome || !a.Ended.Equal(tc.end) {
			t.Errorf("%s: %s at %s, want %s at %s", tc.name, a.Outcome, a.Ended, tc.outcome, tc.end)
		}
	}
}

func TestPodsOfOthersAreNoAttempts(t *testing.T) {
	for name, p := range map[string]*corev1.Pod{
		"no owner":        pod(func(p *corev1.Pod) { p.OwnerReferences = nil }),
		"another's owner": pod(func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "batch/v1" }),
		"another kind":    pod(func(p *corev1.Pod) { p.Labels[batch.LabelJobKind] = "PyTorchTrainingJob" }),
		"no label":        pod(func(p *corev1.Pod) { delete(p.Labels, batch.LabelJobName) }),
	} {
		if a, err := AttemptOf(p); a != nil || err != nil {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}

func held(begin, end int, queue string) *Held {
	h := &Held{Queue: queue, Namespace: "ns", User: "=cmd()"}
	h.Scheduled, h.Requests = at(begin), corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2"), "cpu": resource.MustParse("500m"), "memory": resource.MustParse("2Gi")}
	if end > 0 {
		h.Outcome, h.Ended = Succeeded, at(end)
	}
	return h
}

func TestUsageIsAmountTimesOverlap(t *testing.T) {
	s := Sums{Span: Span{From: at(100), To: at(400), Step: 100 * time.Second}, By: ByQueue}
	for _, h := range []*Held{held(0, 150, "a"), held(120, 320, "a"), held(390, 0, "b"), held(10, 90, "a"), held(500, 0, "b")} {
		s.Add(h)
	}
	// Queue a held two GPUs for 50 s and 80 s in the first step, 100 s in the second and 20 s in the third.
	seconds := map[string][]float64{"a": {130, 100, 20}, "b": {0, 0, 10}}
	var want []Usage
	for step := range 3 {
		for _, queue := range []string{"a", "b"} {
			for _, r := range []struct {
				name   string
				amount float64
			}{{"cpu", 0.5}, {"memory", 2}, {"nvidia.com/gpu", 2}} {
				if held := seconds[queue][step]; held > 0 {
					want = append(want, Usage{at(100 + 100*step), at(200 + 100*step), queue, r.name, r.amount * held / 3600})
				}
			}
		}
	}
	if diff := cmp.Diff(want, s.Rows(), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Error(diff)
	}
}

func TestStepsAddUpToTheWhole(t *testing.T) {
	total := func(step time.Duration) float64 {
		s := Sums{Span: Span{From: at(0), To: at(86_400), Step: step}, By: ByUser, Extended: true}
		for i := range 1000 {
			s.Add(held(i*97, i*97+13*i, "q"))
		}
		sum := 0.
		for _, u := range s.Rows() {
			sum += u.Hours
		}
		return sum
	}
	whole := total(0)
	for _, step := range []time.Duration{time.Minute, 7 * time.Minute, 24 * time.Hour, 36 * time.Hour} {
		if got := total(step); math.Abs(got-whole) > whole*1e-9 {
			t.Errorf("steps of %s add up to %v, and the whole is %v", step, got, whole)
		}
	}
}

func TestSpansAreBounded(t *testing.T) {
	for _, s := range []Span{{From: at(1), To: at(1)}, {From: at(2), To: at(1)}, {From: at(0), To: at(86_400), Step: time.Second}, {From: at(0), To: at(1), Step: -1}} {
		if s.Check() == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	if err := (Span{From: at(0), To: at(86_400), Step: time.Hour}).Check(); err != nil {
		t.Error(err)
	}
}

func TestCSVHoldsNoFormulas(t *testing.T) {
	var b bytes.Buffer
	s := Sums{Span: Span{From: at(0), To: at(3600)}, By: ByUser, Extended: true}
	s.Add(held(0, 1800, "q"))
	if err := WriteCSV(&b, ByUser, s.Rows()); err != nil {
		t.Fatal(err)
	}
	want := "from,to,user,resource,hours\n2026-11-23T08:00:00Z,2026-11-23T09:00:00Z,'=cmd(),nvidia.com/gpu,1.000000\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestJobsInJSONHaveTheirOutcome verifies that responses contain the outcome and all other fields.
func TestJobsInJSONHaveTheirOutcome(t *testing.T) {
	begin := time.Date(2026, 1, 23, 8, 0, 0, 0, time.UTC)
	deleted := Job{UID: "u", Kind: "GenericJob", Namespace: "ns", Name: "j", Phase: "Running", Created: begin, Gone: begin.Add(time.Hour), Conditions: []Condition{{Type: "Running", Since: begin}}}
	for want, j := range map[string]Job{"Deleted": deleted, "New": {UID: "n", Created: begin}, "Failed": {UID: "f", Phase: "Failed", Created: begin, Ended: begin, Gone: begin}} {
		data, err := json.Marshal(&JobList{Jobs: []*Job{&j}})
		if err != nil || !strings.Contains(string(data), `"outcome":"`+want+`"`) {
			t.Errorf("%s: %s, %v", want, data, err)
		}
		d := JobDetails{Job: j, Attempts: []AttemptDetails{{Attempt: Attempt{UID: "a", Job: "u"}, Pod: json.RawMessage(`{}`)}}, Events: []json.RawMessage{json.RawMessage(`{}`)}}
		data, err = json.Marshal(d)
		if err != nil || !strings.Contains(string(data), `"outcome":"`+want+`"`) {
			t.Errorf("%s: %s, %v", want, data, err)
		}
		var back JobDetails
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		d.Attempts[0].Job = "" // responses do not contain the UID of the job
		if diff := cmp.Diff(d, back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want, diff)
		}
	}
}
