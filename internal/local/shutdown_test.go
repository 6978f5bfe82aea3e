package local

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/local/logind"
)

// TestDrained: how long a shutdown waits for pods, by the time since it began with a grace of 30 s.
func TestDrained(t *testing.T) {
	pod := func(grace int64) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	}
	for name, c := range map[string]struct {
		left    []corev1.Pod
		unknown error
		until   time.Duration // when it waits no more
	}{
		"none left":                            {nil, nil, 0},
		"a pod that must have ended by now":    {[]corev1.Pod{pod(30)}, nil, 30*time.Second + reportTime},
		"a pod that has longer":                {[]corev1.Pod{pod(31)}, nil, 30 * time.Second},
		"both":                                 {[]corev1.Pod{pod(31), pod(1)}, nil, 30*time.Second + reportTime},
		"no API server, and no kubelet either": {nil, errors.New("refused"), 0},
	} {
		began := time.Now()
		s := &shutdown{logind: logind.NewServer(), began: began, status: ShutdownStatus{Deadline: began.Add(30 * time.Second)}}
		if c.until > 0 && s.drained(c.left, c.unknown, began.Add(c.until-time.Millisecond)) {
			t.Errorf("%s: the shutdown goes on before %s", name, c.until)
		}
		if !s.drained(c.left, c.unknown, began.Add(c.until)) {
			t.Errorf("%s: the shutdown waits after %s", name, c.until)
		}
		if s.status.Pods != len(c.left) {
			t.Errorf("%s: %d pods are said to be left", name, s.status.Pods)
		}
	}
}

func TestShutdownIsShortenedAndNeverProlonged(t *testing.T) {
	begun := 0
	s := &shutdown{begin: func() { begun++ }, logind: logind.NewServer()}
	if s.now() != nil {
		t.Error("the cluster goes down though nobody asked")
	}
	s.request(time.Minute)
	first := s.now().Deadline
	s.request(time.Hour)
	if got := s.now().Deadline; got != first {
		t.Errorf("a second request moved the deadline by %s", got.Sub(first))
	}
	s.request(0)
	if got := s.now().Deadline; time.Until(got) > 0 {
		t.Errorf("a request to end at once leaves %s", time.Until(got))
	}
	if begun != 3 {
		t.Errorf("the end was begun %d times", begun)
	}
}

// TestShutdownGivesPodsAllTheirTime: what ends before the pods do takes nothing of the time that they have.
func TestShutdownGivesPodsAllTheirTime(t *testing.T) {
	s := &shutdown{begin: func() {}, logind: logind.NewServer()}
	s.request(time.Minute)
	s.began = s.began.Add(-time.Hour) // so long did the others take
	s.status.Deadline = s.status.Deadline.Add(-time.Hour)
	if !s.reach() {
		t.Error("the pods have no time")
	}
	if left := time.Until(s.now().Deadline); left < 59*time.Second {
		t.Errorf("the pods have %s", left)
	}
	s.request(0)
	if s.reach() {
		t.Error("a request to end at once leaves time")
	}
}
