package plane

import (
	"sync"
	"testing"
)

// Shared is a plane that several tests use at the same time. It starts when the first test asks for it.
type Shared struct {
	start func() (*Plane, error)
	once  sync.Once
	plane *Plane
	err   error
}

// NewShared returns a shared plane; start starts it.
func NewShared(start func() (*Plane, error)) *Shared { return &Shared{start: start} }

// Get returns the plane, and ends the test if it could not be started.
func (s *Shared) Get(t testing.TB) *Plane {
	t.Helper()
	s.once.Do(func() { s.plane, s.err = s.start() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.plane
}

// Stop stops the plane if it was started.
func (s *Shared) Stop() {
	if s.plane != nil {
		s.plane.Stop()
	}
}

// Pool holds planes that are lent to one test at a time, so that the test may break them or change cluster-scoped
// state. Planes start when they are needed.
type Pool struct {
	start func() (*Plane, error)
	// free holds the planes that no test uses; nil stands for a plane that has not been started.
	free chan *Plane
}

// NewPool returns a pool of n planes; start starts each of them.
func NewPool(n int, start func() (*Plane, error)) *Pool {
	p := &Pool{start: start, free: make(chan *Plane, n)}
	for range n {
		p.free <- nil
	}
	return p
}

// Lend waits for a plane, which belongs to the test until it ends. The plane of a failed test is not lent again.
func (p *Pool) Lend(t testing.TB) *Plane {
	t.Helper()
	lent := <-p.free
	t.Cleanup(func() {
		if t.Failed() && lent != nil {
			lent.Stop()
			lent = nil
		}
		p.free <- lent
	})
	if lent == nil {
		started, err := p.start()
		if err != nil {
			t.Fatal(err)
		}
		lent = started
	}
	lent.AwaitReady(t)
	return lent
}

// Stop stops all planes. No test may use one afterwards.
func (p *Pool) Stop() {
	for range cap(p.free) {
		if one := <-p.free; one != nil {
			one.Stop()
		}
	}
}
