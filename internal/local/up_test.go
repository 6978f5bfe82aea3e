package local

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestEndOfAForeignClusterIsNoticed verifies that a command that waits for the cluster of another one returns when that
// cluster has ended: its machine process may have been dying when the command began.
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
