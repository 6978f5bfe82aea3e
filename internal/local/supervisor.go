package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// steadyAfter is how long a program must have run for its next crash to count as its first.
	steadyAfter = 10 * time.Second
	// stopGrace is how long a program may take to end after it was asked to.
	stopGrace = 3 * time.Second
	// causeInterval is how often is looked whether what a component cannot start for is still there.
	causeInterval = 500 * time.Millisecond
	// readyInterval is how often a component that is not ready yet is asked again.
	readyInterval = 20 * time.Millisecond
	// probeTimeout is how long a component that was ready may take to say that it still is.
	probeTimeout = 2 * time.Second
	// probeEvery is how often those that were ready are asked while others are not.
	probeEvery = time.Second
	// maxLogSize is the size, in bytes, from which a log is set aside when its component starts.
	maxLogSize = 16 << 20
)

// State is where a component is in its life.
type State string

// The states of a component.
const (
	StateWaiting  State = "Waiting"  // for what it needs
	StateStarting State = "Starting" // runs, but does not serve yet
	StateReady    State = "Ready"
	StateNotReady State = "NotReady" // was ready, and does not serve now
	StateCrashed  State = "Crashed"  // ended by itself; starts again after a delay
	StateStopped  State = "Stopped"  // by request
)

// ComponentStatus is a component as seen by the supervisor.
type ComponentStatus struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Since    time.Time `json:"since"` // of the state
	Restarts int       `json:"restarts"`
	// Message says what the component waits for or how it ended.
	Message string `json:"message,omitempty"`
	// Blocked says that the component will not serve until somebody has done what the message says.
	Blocked bool `json:"blocked,omitempty"`
}

// blockedError is the answer of a component that will not serve until somebody has done what the error says.
type blockedError struct{ error }

// Supervisor keeps components running. A component starts when those it needs have been ready, starts again with a
// growing delay whenever it ends, and is ended after those that need it. Its programs die with the supervising process.
type Supervisor struct {
	binary  string
	logFile func(component string) string
	units   []*unit
	spawn   chan func()
}

// NewSupervisor makes a supervisor of the components of plane, which run binary with their arguments and write to the
// file that logFile names.
func NewSupervisor(binary string, plane []Component, logFile func(component string) string) (*Supervisor, error) {
	if err := checkPlane(plane); err != nil {
		return nil, err
	}
	s := &Supervisor{binary: binary, logFile: logFile, spawn: make(chan func())}
	for _, c := range plane {
		u := &unit{Component: c, usable: make(chan struct{}), served: make(chan struct{}), changed: make(chan struct{}, 1), wanted: true}
		u.set(StateWaiting, "")
		s.units = append(s.units, u)
	}
	return s, nil
}

// Run starts the components and keeps them running until ctx ends; then it ends them, the last one first, and returns.
func (s *Supervisor) Run(ctx context.Context) {
	keepers, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.spawner(keepers) })
	for _, u := range s.units {
		wg.Go(func() { s.keep(keepers, u) })
	}
	<-ctx.Done()
	for _, u := range slices.Backward(s.units) {
		if u.Drain != nil && isClosed(u.served) {
			u.Drain(keepers)
		}
		u.stop()
	}
	cancel()
	wg.Wait()
}

// spawner starts every program from one thread that lives as long as they may: the kernel sends the signal that ties
// a child to its parent when the thread which made the child ends.
func (s *Supervisor) spawner(ctx context.Context) {
	runtime.LockOSThread()
	for {
		select {
		case f := <-s.spawn:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// Status lists the components in the order of their needs.
func (s *Supervisor) Status() []ComponentStatus {
	list := make([]ComponentStatus, len(s.units))
	for i, u := range s.units {
		list[i] = u.now()
	}
	return list
}

// Probe does as Status, and asks every component that has become ready whether it still is: one can be frozen or cut off. It takes
// no longer than probeTimeout.
func (s *Supervisor) Probe(ctx context.Context) []ComponentStatus {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	list := s.Status()
	var wg sync.WaitGroup
	for i, u := range s.units {
		if list[i].State != StateReady || u.Ready == nil {
			continue
		}
		wg.Go(func() {
			if err := u.Ready(ctx); err != nil {
				list[i].State = StateNotReady
				list[i].Message, list[i].Blocked = explain(err, u.cause())
			}
		})
	}
	wg.Wait()
	s.blameNeeds(list)
	return list
}

// blameNeeds names, for each component that is not ready any more, the first one that it needs and that is not either.
func (s *Supervisor) blameNeeds(list []ComponentStatus) {
	for i, u := range s.units {
		for j := range i {
			needed := slices.Contains(u.Needs, list[j].Name) || slices.Contains(u.Uses, list[j].Name)
			if list[i].State == StateNotReady && needed && list[j].State != StateReady {
				list[i].Message, list[i].Blocked = "needs "+list[j].Name, false
				break
			}
		}
	}
}

// Stop ends a component and holds it down until Start. It returns when the program has ended.
func (s *Supervisor) Stop(name string) error {
	return s.with(name, (*unit).stop)
}

// Start lets a component run again that Stop held down.
func (s *Supervisor) Start(name string) error {
	return s.with(name, func(u *unit) { u.want(true) })
}

// Kill ends a component's program by SIGKILL; it starts again at once.
func (s *Supervisor) Kill(name string) error {
	return s.with(name, (*unit).kill)
}

func (s *Supervisor) with(name string, do func(*unit)) error {
	for _, u := range s.units {
		if u.Name == name {
			do(u)
			return nil
		}
	}
	return fmt.Errorf("there is no component %q here", name)
}

// keep is the life of a component.
func (s *Supervisor) keep(ctx context.Context, u *unit) {
	if !s.awaitNeeds(ctx, u) {
		return
	}
	delay := firstBackoff
	for u.awaitWanted(ctx) {
		began := time.Now()
		err := s.runOnce(ctx, u)
		if ctx.Err() != nil || err == nil && u.Run != nil {
			return
		}
		if time.Since(began) > steadyAfter || u.takeKilled() {
			delay = firstBackoff
		}
		if !u.isWanted() {
			u.set(StateStopped, "")
			continue
		}
		u.crashed(err)
		u.pause(ctx, delay)
		delay = min(2*delay, lastBackoff)
	}
}

func (s *Supervisor) awaitNeeds(ctx context.Context, u *unit) bool {
	for _, name := range u.Uses {
		if !u.awaitOther(ctx, name, s.unit(name).usable) {
			return false
		}
	}
	for _, name := range u.Needs {
		if !u.awaitOther(ctx, name, s.unit(name).served) {
			return false
		}
	}
	return true
}

func (s *Supervisor) unit(name string) *unit {
	return s.units[slices.IndexFunc(s.units, func(u *unit) bool { return u.Name == name })]
}

// runOnce does the component's step, or runs its program until it ends.
func (s *Supervisor) runOnce(ctx context.Context, u *unit) error {
	u.set(StateStarting, "")
	if u.Run != nil {
		if err := u.Run(ctx); err != nil {
			return err
		}
		u.becomeReady()
		return nil
	}
	cmd, err := s.command(u)
	if err != nil {
		return err
	}
	err = s.launch(ctx, u, cmd)
	cmd.Stdout.(*os.File).Close()
	if err != nil {
		return err
	}
	alive, ended := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { u.awaitReady(alive) })
	err = cmd.Wait()
	u.gone()
	ended()
	wg.Wait()
	if err == nil {
		return errors.New("ended by itself")
	}
	return err
}

// launch has the spawner start the program, unless ctx, which ends the spawner too, ends before.
func (s *Supervisor) launch(ctx context.Context, u *unit, cmd *exec.Cmd) error {
	started := make(chan error, 1)
	select {
	case s.spawn <- func() { started <- u.launch(cmd) }:
		return <-started
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Supervisor) command(u *unit) (*exec.Cmd, error) {
	path := s.logFile(u.Name)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("setting the log aside: %w", err)
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	cmd := exec.Command(s.binary, u.Args...)
	cmd.Env = append(os.Environ(), u.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}
