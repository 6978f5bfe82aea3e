package local

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestEndOfAForeignClusterIsNoticed verifies that a command that waits for a cluster that another command started
// returns when that cluster has ended. The machine process of the cluster may already have been exiting when the
// command began.
func TestEndOfAForeignClusterIsNoticed(t *testing.T) {
	d := Dir(t.TempDir())
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- awaitReady(ctx, d, nil, func(ComponentStatus) {}) }()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}
