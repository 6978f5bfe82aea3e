package plugin

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Of one key nothing is done while something older is, and what is oldest does not take effect last.
func TestLastWork(t *testing.T) {
	l := newLastWork(time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { l.run(ctx, 4); close(done) }()
	t.Cleanup(func() { cancel(); <-done })

	began, release, took := make(chan string, 10), make(chan error), make(chan string, 10)
	work := func(name string) func(context.Context) error {
		return func(context.Context) error {
			began <- name
			err := <-release
			took <- name
			return err
		}
	}
	l.put("a", work("first"))
	if got := <-began; got != "first" {
		t.Fatal(got)
	}
	l.put("a", work("second"))
	l.put("a", work("third"))
	l.put("b", func(context.Context) error { took <- "other"; return nil })
	if got := <-took; got != "other" {
		t.Fatalf("%s is done before the work of another key", got)
	}
	select {
	case got := <-began:
		t.Fatalf("%s is begun while the first is under way", got)
	default:
	}
	release <- nil
	if a, b := <-took, <-began; a != "first" || b != "third" {
		t.Fatalf("%s took effect, then %s", a, b)
	}
	release <- errors.New("the API server is away")
	if a, b := <-took, <-began; a != "third" || b != "third" {
		t.Fatalf("%s failed, then %s is done", a, b)
	}
	l.put("a", work("fourth"))
	release <- errors.New("the API server is away")
	if a, b := <-took, <-began; a != "third" || b != "fourth" {
		t.Fatalf("%s failed, then %s is done", a, b)
	}
	release <- nil
	<-took
	l.order.Add("a") // as the timer does
	l.put("b", func(context.Context) error { took <- "other"; return nil })
	if got := <-took; got != "other" || len(began) > 0 {
		t.Errorf("what failed is done again after something newer")
	}
}
