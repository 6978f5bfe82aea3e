package recorder

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/archive"
)

func lines(n, length int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "2026-11-23T08:00:00.%09dZ %0*d\n", i, length-1, i)
	}
	return b.String()
}

func TestTailKeepsTheEnd(t *testing.T) {
	for _, tc := range []struct {
		name        string
		log         string
		size, lines int
		cut         bool
	}{
		{"an empty log", "", 0, 0, false},
		{"a short log", lines(10, 100), 1000, 10, false},
		{"a log without a line break at its end", strings.TrimSuffix(lines(10, 100), "\n"), 999, 10, false},
		{"a log that just fits", lines(64, 1024), KeptBytes, 64, false},
		{"a long log", lines(1000, 1024), KeptBytes, 64, true},
		{"a log with one endless line", "2026-11-23T08:00:00Z " + strings.Repeat("x", 3*KeptBytes), KeptBytes - 21, 1, false},
	} {
		var end tail
		if err := end.copy(strings.NewReader(tc.log)); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if end.size != tc.size || len(end.sizes) != tc.lines || end.cut != tc.cut {
			t.Errorf("%s: %d bytes, %d lines, cut %t; want %d, %d, %t", tc.name, end.size, len(end.sizes), end.cut, tc.size, tc.lines, tc.cut)
		}
		if len(end.text) > 3*KeptBytes || tc.size == KeptBytes && !strings.HasSuffix(tc.log, string(end.text)) {
			t.Errorf("%s: what is kept is not the end", tc.name)
		}
	}
}

// TestLogOfTheNextAttemptIsNotTaken verifies that the recorder does not store the log of the next attempt as the log of
// this one. The API server finds a log by the name of its pod, and all pods of a replica have the same name.
func TestLogOfTheNextAttemptIsNotTaken(t *testing.T) {
	end := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	for begin, later := range map[time.Duration]bool{-time.Hour: false, time.Second: false, 3 * time.Second: true} {
		t9 := tail{text: []byte(end.Add(begin).Format(time.RFC3339Nano) + " text\n")}
		if got := t9.later(&archive.Attempt{Outcome: archive.Failed, Ended: end}); got != later {
			t.Errorf("a log that begins %s after the end: %t", begin, got)
		}
		if t9.later(&archive.Attempt{}) {
			t.Errorf("a log of a running attempt counts as that of another")
		}
	}
}

// TestContainersWithLogs verifies that the recorder keeps the logs of containers that have started and of an init
// container that failed.
func TestContainersWithLogs(t *testing.T) {
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	running, waiting := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{}
	for want, states := range map[string][3]corev1.ContainerState{
		"main proxy": {ended(0), ended(1), running}, "setup": {ended(4), waiting, waiting}, "": {running, waiting, waiting},
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: "setup", State: states[0]}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: states[1]}, {Name: "proxy", State: states[2]}}}}
		if got := strings.Join(withLogs(p), " "); got != want {
			t.Errorf("the logs of %q are kept, want %q", got, want)
		}
	}
}
