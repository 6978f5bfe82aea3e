package plane

import (
	"sync"
	"testing"
)

// Shared is a control plane that several tests use at the same time. It is started when the first test requests it.
type Shared struct {
	start func() (*Plane, error)
	once  sync.Once
	plane *Plane
	err   error
}

// NewShared returns a shared control plane that is started with start.
func NewShared(start func() (*Plane, error)) *Shared { return &Shared{start: start} }

// Get returns the control plane, and starts it if necessary. It ends the test if the control plane could not be
// started.
func (s *Shared) Get(t testing.TB) *Plane {
	t.Helper()
	s.once.Do(func() { s.plane, s.err = s.start() })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.plane
}

// Stop stops the control plane if it was started.
func (s *Shared) Stop() {
	if s.plane != nil {
		s.plane.Stop()
	}
}

// Pool lends each control plane to one test at a time, so that the test may break it or change cluster-scoped state.
// Control planes are started when they are needed, and stopped as soon as no further test needs one, because an idle
// control plane takes processor time from the other tests.
type Pool struct {
	start func() (*Plane, error)
	lent  chan struct{} // has one element for each test that has a control plane

	mu     sync.Mutex
	wanted int      // tests that still need a control plane
	idle   []*Plane // control planes that no test uses
}

// NewPool returns a pool of at most n control planes that are started with start.
func NewPool(n int, start func() (*Plane, error)) *Pool {
	return &Pool{start: start, lent: make(chan struct{}, n)}
}

// Lend lets the test run in parallel with others and waits for a control plane, which the test has to itself until it
// ends. The control plane of a failed test is not lent again.
func (p *Pool) Lend(t *testing.T) *Plane {
	t.Helper()
	p.want() // all tests do this before the first parallel test continues, so that no control plane is stopped too early
	t.Parallel()
	return p.take(t)
}

// LendSerial does what Lend does, for a test that cannot run in parallel with others.
func (p *Pool) LendSerial(t *testing.T) *Plane {
	t.Helper()
	p.want()
	return p.take(t)
}

func (p *Pool) want() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted++
}

func (p *Pool) take(t *testing.T) *Plane {
	t.Helper()
	p.lent <- struct{}{}
	plane := p.pop()
	t.Cleanup(func() {
		if plane != nil && (t.Failed() || !p.push(plane)) {
			plane.Stop()
		}
		<-p.lent
	})
	if plane == nil {
		var err error
		if plane, err = p.start(); err != nil {
			t.Fatal(err)
		}
	}
	plane.AwaitReady(t)
	return plane
}

// pop returns an idle control plane to a test. If there is none, it returns nil, and the test must start one.
func (p *Pool) pop() *Plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted--
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	plane := p.idle[last]
	p.idle = p.idle[:last]
	return plane
}

// push makes a control plane idle and returns true. If no further test needs one, push does nothing and returns false.
func (p *Pool) push(plane *Plane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted <= len(p.idle) {
		return false
	}
	p.idle = append(p.idle, plane)
	return true
}

// Stop stops the idle control planes, if any remain. No test may use a control plane afterwards.
func (p *Pool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, plane := range p.idle {
		plane.Stop()
	}
	p.idle = nil
}
