// Package await waits in tests until a condition holds. Start reading at Until.
package await

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// Patience is the longest time to wait for a condition. It is long because the machine may be busy, and because
// controllers may retry a lost write late: the PersistentVolume controller retries after 15 s.
const Patience = 3 * time.Minute

// The pause between two checks doubles from shortest to longest. It is at least restOf times the duration of the last
// check, but at most maxRest, because waiting tests must leave the processors to the programs for which they wait.
const (
	shortest = 5 * time.Millisecond
	longest  = 40 * time.Millisecond
	restOf   = 30
	maxRest  = 200 * time.Millisecond
)

// Until calls check until it returns nil. If that takes longer than Patience, the test fails with the description of
// the condition and the last error, which describes the actual state.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	if err := Try(what, check); err != nil {
		t.Fatal(err)
	}
}

// That calls holds until it returns true, as Until does.
func That(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if !holds() {
			return errors.New("it does not hold")
		}
		return nil
	})
}

// TimedRuns is the number of times that a test measures a duration before it calls Overdue. One run within the limit
// is enough.
const TimedRuns = 3

// Overdue reports that a test exceeded its time limit. what describes the excess. Overdue fails the test, or only
// logs what if the machine is too busy for time measurements: if its load average of the last minute exceeds four
// times its number of CPUs.
func Overdue(t testing.TB, what string) {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil {
		t.Fatalf("reading the load of the machine: %v", err)
	}
	if load > 4*float64(runtime.NumCPU()) {
		t.Logf("%s, on a machine with a load of %.0f", what, load)
		return
	}
	t.Error(what)
}

// Try does what Until does, but returns the error instead of failing a test.
func Try(what string, check func() error) error {
	deadline := time.Now().Add(Patience)
	for pause := shortest; ; pause = min(2*pause, longest) {
		began := time.Now()
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s until %s: %w", Patience, what, err)
		}
		time.Sleep(max(pause, min(restOf*time.Since(began), maxRest)))
	}
}
