package local

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/local/logind"
)

// TestShutdownWaitsForPods verifies how long a shutdown with a grace period of 30 s waits for pods.
func TestShutdownWaitsForPods(t *testing.T) {
	pod := func(grace int64) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	}
	for name, c := range map[string]struct {
		remaining []corev1.Pod
		listErr   error
		until     time.Duration // when the shutdown stops waiting, counted from the start of the grace period
	}{
		"none left":                            {nil, nil, 0},
		"a pod that must have ended by now":    {[]corev1.Pod{pod(30)}, nil, 30*time.Second + reportTime},
		"a pod that has longer":                {[]corev1.Pod{pod(31)}, nil, 30 * time.Second},
		"both":                                 {[]corev1.Pod{pod(31), pod(1)}, nil, 30*time.Second + reportTime},
		"no API server, and no kubelet either": {nil, errors.New("refused"), 0},
	} {
		graceStart := time.Now()
		s := &shutdown{logind: logind.NewServer(), graceStart: graceStart, status: ShutdownStatus{Deadline: graceStart.Add(30 * time.Second)}}
		if c.until > 0 && s.drained(c.remaining, c.listErr, graceStart.Add(c.until-time.Millisecond)) {
			t.Errorf("%s: the shutdown continues before %s", name, c.until)
		}
		if !s.drained(c.remaining, c.listErr, graceStart.Add(c.until)) {
			t.Errorf("%s: the shutdown waits after %s", name, c.until)
		}
		if s.status.Pods != len(c.remaining) {
			t.Errorf("%s: the status reports %d pods", name, s.status.Pods)
		}
	}
}

func TestShutdownIsShortenedAndNeverProlonged(t *testing.T) {
	begun := 0
	s := &shutdown{endSupervision: func() { begun++ }, logind: logind.NewServer()}
	if s.currentStatus() != nil {
		t.Error("the cluster shuts down without a request")
	}
	s.request(time.Minute)
	first := s.currentStatus().Deadline
	s.request(time.Hour)
	if got := s.currentStatus().Deadline; got != first {
		t.Errorf("a second request moved the deadline by %s", got.Sub(first))
	}
	s.request(0)
	if got := s.currentStatus().Deadline; time.Until(got) > 0 {
		t.Errorf("a request to end at once leaves %s", time.Until(got))
	}
	if begun != 3 {
		t.Errorf("the shutdown was started %d times", begun)
	}
}

// TestShutdownGivesPodsAllTheirTime verifies that the components that stop before the pods do not use up any of the
// pods' grace period.
func TestShutdownGivesPodsAllTheirTime(t *testing.T) {
	s := &shutdown{endSupervision: func() {}, logind: logind.NewServer()}
	s.request(time.Minute)
	s.graceStart = s.graceStart.Add(-time.Hour) // the other components took an hour
	s.status.Deadline = s.status.Deadline.Add(-time.Hour)
	if !s.startGracePeriod() {
		t.Error("the pods have no time")
	}
	if remaining := time.Until(s.currentStatus().Deadline); remaining < 59*time.Second {
		t.Errorf("the pods have %s", remaining)
	}
	s.request(0)
	if s.startGracePeriod() {
		t.Error("a request to end at once leaves time")
	}
}
