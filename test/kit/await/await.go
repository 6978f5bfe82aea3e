// Package await waits in tests until a condition holds. It does not start anything: packages plane and program do.
// Start reading at Until.
package await

import (
	"fmt"
	"testing"
	"time"
)

// Patience is the longest time to wait for a condition. It is long because the machine may be busy, and because a
// controller may retry a lost write only after a while: that of PersistentVolumes does after 15 s.
const Patience = 3 * time.Minute

// The pause between two checks doubles from shortest to longest.
const (
	shortest = 5 * time.Millisecond
	longest  = 40 * time.Millisecond
)

// Until calls check until it returns nil. If that takes longer than Patience, the test fails with the description of
// the condition and the last error, which describes the state instead.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	if err := Try(what, check); err != nil {
		t.Fatal(err)
	}
}

// Try does what Until does and returns the error.
func Try(what string, check func() error) error {
	deadline := time.Now().Add(Patience)
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s until %s: %w", Patience, what, err)
		}
		time.Sleep(pause)
	}
}
