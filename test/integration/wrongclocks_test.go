package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// clockFile is the file of the operator's wallClock.
type clockFile string

func newClockFile(t *testing.T) clockFile { return clockFile(filepath.Join(t.TempDir(), "clock")) }

// env returns the environment variable that names the file to the operator.
func (f clockFile) env() []string { return []string{asClock + "=" + string(f)} }

// set makes the clock run ahead by the given time, in whole seconds. If ahead is negative, the clock runs behind.
func (f clockFile) set(t *testing.T, ahead time.Duration) {
	next := string(f) + ".next"
	if err := os.WriteFile(next, []byte(strconv.Itoa(int(ahead/time.Second))), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		t.Error(err)
	}
}

// TestJobsSurviveClockJumps verifies that restarting jobs survive if the operator's clock jumps by an hour in either
// direction.
func TestJobsSurviveClockJumps(t *testing.T) {
	l := newLoad(t)
	file := newClockFile(t)
	startOperatorWith(t, file.env(), l.proxy.Kubeconfig, "jobs: {restartBackoff: 100ms, maxRestartBackoff: 200ms}")
	l.settleIn()
	jumps := 0
	stop := every(t, 200*time.Millisecond, func() {
		jumps++
		file.set(t, []time.Duration{time.Hour, 0, -time.Hour, 0}[jumps%4])
	})
	l.begin()
	l.finish()
	stop()
	l.Logf("%d jumps", jumps)
}

// TestWrongClocksDoNotDelayJobs verifies that jobs restart without delay if the operator's clock is an hour behind or
// ahead of the clocks of the nodes and of the API server: an end of a pod that is an hour in the future must not delay
// the restart by an hour.
func TestWrongClocksDoNotDelayJobs(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			l := newLoad(t)
			file := newClockFile(t)
			file.set(t, ahead)
			startOperatorWith(t, file.env(), l.proxy.Kubeconfig, "jobs: {restartBackoff: 100ms, maxRestartBackoff: 200ms}")
			l.settleIn()
			l.begin()
			l.finish()
		})
	}
}
