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

	"k8s.io/klog/v2"
)

const (
	// firstBackoff and lastBackoff are the shortest and the longest delay before a restart.
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// steadyAfter is how long a program must run before the restart delay is reset.
	steadyAfter = 10 * time.Second
	// stopGrace is how long a program may take to exit after SIGTERM.
	stopGrace = 3 * time.Second
	// causeInterval is how often the Cause of a failure is checked again during the delay before a restart.
	causeInterval = 500 * time.Millisecond
	// readyInterval is the pause between two checks of a component or cluster that is starting or stopping.
	readyInterval = 20 * time.Millisecond
	// probeTimeout is how long a ready component may take to answer a probe.
	probeTimeout = 2 * time.Second
	// probeEvery is how often ready components are probed while others are not ready.
	probeEvery = time.Second
	// maxLogSize is the size, in bytes, above which a log is rotated when its component starts.
	maxLogSize = 16 << 20
)

// State is the state of a component.
type State string

// The states of a component.
const (
	StateWaiting  State = "Waiting"  // waits for its dependencies
	StateStarting State = "Starting" // runs, but does not serve yet
	StateReady    State = "Ready"    // serves, or its step has succeeded
	StateNotReady State = "NotReady" // was ready, and does not serve now
	StateCrashed  State = "Crashed"  // exited or failed; starts again after a delay
	StateStopped  State = "Stopped"  // stopped by a client or by the end of the supervisor
)

// ComponentStatus is the supervisor's view of a component.
type ComponentStatus struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	PID      int       `json:"pid,omitempty"` // 0 unless the program runs
	Since    time.Time `json:"since"`         // time at which the component entered the state
	Restarts int       `json:"restarts"`      // how often the step failed or the program ended without a Stop
	// Message says why the component is not ready: for example what it waits for, or how it exited.
	Message string `json:"message,omitempty"`
	// Blocked is true if the component will not serve until a person does what the message says.
	Blocked bool `json:"blocked,omitempty"`
}

// blockedError is a readiness error that persists until a person does what the error says.
type blockedError struct{ error }

// Supervisor keeps components running. A component starts when its dependencies have been ready or usable once. A
// program restarts with a growing delay whenever it exits. The components stop in reverse order. The programs die with
// the supervising process.
type Supervisor struct {
	binary     string
	logFile    func(component string) string
	components []*supervisedComponent
	spawn      chan func()
}

// NewSupervisor returns a supervisor of the given components, and an error if their definitions are invalid. binary is
// the path of the program for components without a Program of their own. Each program writes its output to the file
// that logFile names.
func NewSupervisor(binary string, components []Component, logFile func(component string) string) (*Supervisor, error) {
	if err := validateComponents(components); err != nil {
		return nil, err
	}
	s := &Supervisor{binary: binary, logFile: logFile, spawn: make(chan func())}
	for _, definition := range components {
		c := &supervisedComponent{Component: definition, firstUsable: make(chan struct{}), firstReady: make(chan struct{}), changed: make(chan struct{}, 1), wanted: true}
		c.setState(StateWaiting, "")
		s.components = append(s.components, c)
	}
	return s, nil
}

// Run keeps the components running until ctx ends. Then it drains and stops them one by one in reverse order, and
// returns.
func (s *Supervisor) Run(ctx context.Context) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.runSpawner(running) })
	for _, c := range s.components {
		wg.Go(func() { s.supervise(running, c) })
	}
	<-ctx.Done()
	for _, c := range slices.Backward(s.components) {
		if c.Drain != nil && isClosed(c.firstReady) {
			c.Drain(running)
		}
		c.stop()
	}
	cancel()
	wg.Wait()
}

// runSpawner starts every program on one OS thread that lives until ctx ends, because the kernel kills a child with
// Pdeathsig when the thread that started it ends.
func (s *Supervisor) runSpawner(ctx context.Context) {
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

// Status returns the last known status of the components, in the order of their dependencies.
func (s *Supervisor) Status() []ComponentStatus {
	list := make([]ComponentStatus, len(s.components))
	for i, c := range s.components {
		list[i] = c.currentStatus()
	}
	return list
}

// Probe checks every ready component again and returns the status of all components. It detects components that are
// frozen or unreachable, and takes at most probeTimeout. It does not change what Status returns.
func (s *Supervisor) Probe(ctx context.Context) []ComponentStatus {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	list := s.Status()
	var wg sync.WaitGroup
	for i, c := range s.components {
		if list[i].State != StateReady || c.Ready == nil {
			continue
		}
		wg.Go(func() {
			if err := c.Ready(ctx); err != nil {
				list[i].State = StateNotReady
				list[i].Message, list[i].Blocked = failureMessage(err, c.cause())
			}
		})
	}
	wg.Wait()
	s.reportMissingDependencies(list)
	return list
}

// reportMissingDependencies explains components that are no longer ready by their dependencies. If a dependency of such
// a component is not ready, it replaces the component's message by the name of the first such dependency and clears
// Blocked.
func (s *Supervisor) reportMissingDependencies(list []ComponentStatus) {
	for i, c := range s.components {
		for j := range i {
			needed := slices.Contains(c.Needs, list[j].Name) || slices.Contains(c.Uses, list[j].Name)
			if list[i].State == StateNotReady && needed && list[j].State != StateReady {
				list[i].Message, list[i].Blocked = "needs "+list[j].Name, false
				break
			}
		}
	}
}

// Stop stops a component's program and keeps it stopped until Start. It returns when the program has exited. It does
// not call Drain.
func (s *Supervisor) Stop(name string) error {
	return s.withComponent(name, (*supervisedComponent).stop)
}

// Start starts a component that Stop stopped.
func (s *Supervisor) Start(name string) error {
	return s.withComponent(name, func(c *supervisedComponent) { c.setWanted(true) })
}

// Kill kills a component's program with SIGKILL and returns when it has exited. The program restarts after the shortest
// delay.
func (s *Supervisor) Kill(name string) error {
	return s.withComponent(name, (*supervisedComponent).kill)
}

// withComponent calls do with the component called name, or returns an error if there is none.
func (s *Supervisor) withComponent(name string, do func(*supervisedComponent)) error {
	for _, c := range s.components {
		if c.Name == name {
			do(c)
			return nil
		}
	}
	return fmt.Errorf("there is no component %q here", name)
}

// supervise starts a component after its dependencies and restarts it until ctx ends, or until its step has succeeded.
// It logs every start and exit.
func (s *Supervisor) supervise(ctx context.Context, c *supervisedComponent) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "component", c.Name)
	ctx = klog.NewContext(ctx, logger)
	if !s.awaitDependencies(ctx, c) {
		return
	}
	delay := firstBackoff
	for c.awaitWanted(ctx) {
		began := time.Now()
		err := s.runOnce(ctx, c)
		if ctx.Err() != nil {
			return
		}
		if err == nil && c.Run != nil {
			logger.Info("Completed a step")
			return
		}
		if killed := c.consumeKilled(); killed || time.Since(began) > steadyAfter {
			delay = firstBackoff
		}
		if !c.isWanted() {
			c.setState(StateStopped, "")
			logger.Info("Stopped a component")
			continue
		}
		c.recordCrash(err)
		status := c.currentStatus()
		logger.Info("A component ended and starts again", "reason", status.Message, "restarts", status.Restarts, "delay", delay)
		c.awaitRestart(ctx, delay)
		delay = min(2*delay, lastBackoff)
	}
}

// awaitDependencies waits until the component's dependencies have been usable or ready once. It reports false if ctx
// ends first.
func (s *Supervisor) awaitDependencies(ctx context.Context, c *supervisedComponent) bool {
	for _, name := range c.Uses {
		if !c.awaitDependency(ctx, name, s.component(name).firstUsable) {
			return false
		}
	}
	for _, name := range c.Needs {
		if !c.awaitDependency(ctx, name, s.component(name).firstReady) {
			return false
		}
	}
	return true
}

// component returns the component called name, which must exist.
func (s *Supervisor) component(name string) *supervisedComponent {
	return s.components[slices.IndexFunc(s.components, func(c *supervisedComponent) bool { return c.Name == name })]
}

// runOnce executes the component's step once, or runs its program until it exits. It returns nil only for a step that
// succeeded.
func (s *Supervisor) runOnce(ctx context.Context, c *supervisedComponent) error {
	c.setState(StateStarting, "")
	if c.Run != nil {
		if err := c.Run(ctx); err != nil {
			return err
		}
		c.becomeReady()
		return nil
	}
	cmd, err := s.command(c)
	if err != nil {
		return err
	}
	err = s.startProgram(ctx, c, cmd)
	cmd.Stdout.(*os.File).Close()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Started a component", "pid", cmd.Process.Pid)
	alive, ended := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { c.awaitReady(alive) })
	err = cmd.Wait()
	c.recordEnd()
	ended()
	wg.Wait()
	if err == nil {
		return errors.New("ended unexpectedly")
	}
	return err
}

// startProgram starts the program on the spawner's thread. It returns ctx's error if ctx ends first, which also ends
// the spawner.
func (s *Supervisor) startProgram(ctx context.Context, c *supervisedComponent, cmd *exec.Cmd) error {
	started := make(chan error, 1)
	select {
	case s.spawn <- func() { started <- c.startProcess(cmd) }:
		return <-started
	case <-ctx.Done():
		return ctx.Err()
	}
}

// command returns the component's command with its log open as output; the caller must close the log. command first
// rotates a log that is larger than maxLogSize.
func (s *Supervisor) command(c *supervisedComponent) (*exec.Cmd, error) {
	path := s.logFile(c.Name)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("renaming the old log: %w", err)
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	binary := s.binary
	if c.Program != "" {
		binary = c.Program
	}
	cmd := exec.Command(binary, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}
