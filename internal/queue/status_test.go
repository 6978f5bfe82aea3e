package queue

import (
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func member(node string, phase corev1.PodPhase, requests corev1.ResourceList) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}},
		Status: corev1.PodStatus{Phase: phase}}
}

func TestGroupAllocationIsWhatItsBoundPodsRequest(t *testing.T) {
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	list := func(cpu, gpus string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), gpu: resource.MustParse(gpus)}
	}
	pods := []corev1.Pod{
		member("n", corev1.PodRunning, list("1500m", "2")), member("n", corev1.PodPending, list("500m", "1")),
		member("", corev1.PodPending, list("8", "8")), member("n", corev1.PodSucceeded, list("8", "8")), member("n", corev1.PodFailed, list("8", "8")),
	}
	g := &scheduling.PodGroup{Spec: scheduling.PodGroupSpec{MinMember: 5}}
	s := groupStatus(g, pods, time.Now(), "1")
	cpus, gpus := s.Allocated[corev1.ResourceCPU], s.Allocated[gpu]
	if cpus.String() != "2" || gpus.String() != "3" || len(s.Allocated) != 2 {
		t.Errorf("allocated: %v, want 2 cpu and 3 %s", s.Allocated, gpu)
	}
	if s.Running != 1 || s.Pending != 2 || s.Succeeded != 1 || s.Failed != 1 {
		t.Errorf("counts of pods: %+v", s)
	}
	if s := groupStatus(g, nil, time.Now(), "1"); len(s.Allocated) != 0 {
		t.Errorf("allocated without pods: %v", s.Allocated)
	}
}

func TestGroupConditionKeepsTransitionIDUntilItChanges(t *testing.T) {
	g := &scheduling.PodGroup{Spec: scheduling.PodGroupSpec{MinMember: 2}}
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := member("", corev1.PodPending, nil)
	for i, step := range []struct {
		pods    []corev1.Pod
		id      string
		wantID  string
		wantAge time.Duration
		want    metav1.ConditionStatus
	}{
		{nil, "1", "1", 0, metav1.ConditionFalse},
		{nil, "2", "1", 0, metav1.ConditionFalse},
		{[]corev1.Pod{pod}, "3", "3", 0, metav1.ConditionFalse}, // another message
		{[]corev1.Pod{pod, pod}, "4", "4", 3 * time.Minute, metav1.ConditionTrue},
		{[]corev1.Pod{pod, pod, pod}, "5", "4", 3 * time.Minute, metav1.ConditionTrue},
	} {
		g.Status = groupStatus(g, step.pods, began.Add(time.Duration(i)*time.Minute), step.id)
		c := g.Status.Conditions[0]
		if c.Status != step.want || c.TransitionID != step.wantID || c.LastTransitionTime.Sub(began) != step.wantAge || c.Reason == "" {
			t.Errorf("step %d: %+v, want %s with ID %s since %s", i, c, step.want, step.wantID, step.wantAge)
		}
	}
}

func TestParseDuration(t *testing.T) {
	tests := map[string]time.Duration{
		"": 0, "0": 0, "90m": 90 * time.Minute, "1w2d": 9 * 24 * time.Hour, "1y": 365 * 24 * time.Hour, "1h2m3s4ms": time.Hour + 2*time.Minute + 3*time.Second + 4*time.Millisecond,
		"5ms": 5 * time.Millisecond, "999999y": math.MaxInt64, "292y364d": math.MaxInt64, "99999999999999999999ms": math.MaxInt64, "0y0ms": 0,
	}
	for s, want := range tests {
		if got, err := ParseDuration(s); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"1", "1x", "m1", "1 h", "-1h", "3h2d", "1h1h", "00"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: %v, want an error", s, got)
		}
	}
}

// TestQuotaCountsPodsOfOtherSchedulers verifies that the requests of pods that another scheduler bound count against
// the quota, and that the condition reports them.
func TestQuotaCountsPodsOfOtherSchedulers(t *testing.T) {
	cpu := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	of := func(node, n string) corev1.Pod { return member(node, corev1.PodRunning, cpu(n)) }
	none := []corev1.Pod{}
	for name, test := range map[string]struct {
		quota         corev1.ResourceList
		pods, foreign []corev1.Pod
		want          metav1.ConditionStatus
		message       string
	}{
		"no quota":                      {nil, []corev1.Pod{of("n", "9")}, none, "", ""},
		"less":                          {cpu("4"), []corev1.Pod{of("n", "3")}, none, metav1.ConditionTrue, ""},
		"all of it":                     {cpu("4"), []corev1.Pod{of("n", "3")}, []corev1.Pod{of("n", "1")}, metav1.ConditionTrue, ""},
		"a foreign pod too many":        {cpu("4"), []corev1.Pod{of("n", "3")}, []corev1.Pod{of("n", "2")}, metav1.ConditionFalse, "5 of 4 cpu. Pods that need more of it wait until others have ended. Another scheduler placed 1 of them."},
		"a foreign pod that waits":      {cpu("4"), []corev1.Pod{of("n", "3")}, []corev1.Pod{of("", "2")}, metav1.ConditionTrue, ""},
		"a foreign pod that has ended":  {cpu("4"), []corev1.Pod{of("n", "3")}, []corev1.Pod{member("n", corev1.PodFailed, cpu("2"))}, metav1.ConditionTrue, ""},
		"a quota that became smaller":   {cpu("2"), []corev1.Pod{of("n", "3")}, none, metav1.ConditionFalse, "3 of 2 cpu. Pods that need more of it wait until others have ended."},
		"another resource of the quota": {corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}, []corev1.Pod{of("n", "3")}, none, metav1.ConditionTrue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := &scheduling.Queue{Spec: scheduling.QueueSpec{Quota: scheduling.QueueQuota{Requests: test.quota}}}
			var got scheduling.QueueCondition
			for _, c := range queueStatus(q, nil, 1, test.pods, test.foreign, time.Now()).Conditions {
				if c.Type == scheduling.QueueWithinQuota {
					got = c
				}
			}
			if got.Status != test.want || !strings.HasSuffix(got.Message, test.message) || (got.Message == "") != (test.message == "") {
				t.Errorf("%s: %q", got.Status, got.Message)
			}
			if reason := map[metav1.ConditionStatus]string{metav1.ConditionTrue: scheduling.ReasonWithinQuota, metav1.ConditionFalse: scheduling.ReasonQuotaExceeded}[test.want]; got.Reason != reason {
				t.Errorf("the reason is %q, want %q", got.Reason, reason)
			}
		})
	}
}
