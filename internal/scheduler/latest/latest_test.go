package latest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestLatestValueTakesEffectLast verifies that work for one key runs one at a time, that a newer value replaces one
// that waits, and that failed work is repeated unless a newer value exists. Work for other keys runs at the same time.
// A dropped value is not used.
func TestLatestValueTakesEffectLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, release, took := make(chan string, 10), make(chan error), make(chan string, 10)
		q := New(true, func(_ context.Context, key, value string) error {
			if key == "b" {
				took <- value
				return nil
			}
			began <- value
			err := <-release
			took <- value
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { q.Run(ctx, 4); close(done) }()
		defer func() { cancel(); <-done }()
		away := errors.New("the API server is unavailable")

		q.Put("a", "first")
		if got := <-began; got != "first" {
			t.Fatal(got)
		}
		q.Put("a", "second")
		q.Put("a", "third")
		q.Put("b", "other")
		if got := <-took; got != "other" {
			t.Fatalf("%s is done before the work of another key", got)
		}
		synctest.Wait()
		if len(began) > 0 {
			t.Fatalf("%s starts while the first one runs", <-began)
		}
		release <- nil
		if a, b := <-took, <-began; a != "first" || b != "third" {
			t.Fatalf("%s took effect, then %s", a, b)
		}
		release <- away
		if a, b := <-took, <-began; a != "third" || b != "third" {
			t.Fatalf("%s failed, then %s is done", a, b)
		}
		q.Put("a", "fourth")
		release <- away
		if a, b := <-took, <-began; a != "third" || b != "fourth" {
			t.Fatalf("%s failed, then %s is done", a, b)
		}
		release <- nil
		<-took
		q.queue.Add("a") // as the timer of an older failure does
		q.Put("a", "fifth")
		q.Drop("a")
		synctest.Wait()
		if len(began) > 0 {
			t.Errorf("%s is done, though it was withdrawn or something newer was done", <-began)
		}
	})
}

// TestFailedWorkRunsOnceWithoutRetries verifies that, without retries, failed work runs again only if it is added
// again.
func TestFailedWorkRunsOnceWithoutRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		did := 0
		q := New(false, func(context.Context, string, int) error { did++; return errors.New("refused") })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { q.Run(ctx, 1); close(done) }()
		for want := 1; want <= 2; want++ {
			q.Put("a", want)
			if synctest.Wait(); did != want {
				t.Errorf("done %d times, want %d", did, want)
			}
		}
		cancel()
		<-done
	})
}
