package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// supervisedComponent is a component and its state under supervision.
type supervisedComponent struct {
	Component
	firstUsable chan struct{} // closed when the component is usable for the first time
	firstReady  chan struct{} // closed when the component is ready for the first time
	changed     chan struct{} // receives a token when wanted changes

	mu             sync.Mutex
	status         ComponentStatus
	process        *os.Process   // nil while none runs
	ended          chan struct{} // closed when process has exited
	wanted         bool          // the component should run
	killed         bool          // kill requested the next exit
	messageIsCause bool          // status.Message is the text of Cause
}

// setState records the state, when it began, and its message. It clears Blocked.
func (c *supervisedComponent) setState(state State, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setStateLocked(state, message)
}

// setStateLocked is setState for a caller that holds mu.
func (c *supervisedComponent) setStateLocked(state State, message string) {
	if c.status.State != state {
		c.status.Since = time.Now()
	}
	c.status.Name, c.status.State, c.status.Message, c.status.Blocked = c.Name, state, message, false
	c.messageIsCause = false
}

// currentStatus returns the component's status. If the recorded cause no longer exists, the status omits it.
func (c *supervisedComponent) currentStatus() ComponentStatus {
	c.mu.Lock()
	status, caused := c.status, c.messageIsCause
	c.mu.Unlock()
	if caused && c.Cause() == nil {
		status.Message, status.Blocked = "starts again", false
	}
	return status
}

// startProcess starts cmd. It returns context.Canceled if the component should no longer run.
func (c *supervisedComponent) startProcess(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wanted {
		return context.Canceled
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.process, c.ended, c.status.PID = cmd.Process, make(chan struct{}), cmd.Process.Pid
	return nil
}

// recordEnd records that the program has exited, and wakes stop and kill.
func (c *supervisedComponent) recordEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setStateLocked(StateCrashed, "has ended and starts again")
	close(c.ended)
	c.process, c.status.PID = nil, 0
}

// recordNotServing records why the running program does not serve yet.
func (c *supervisedComponent) recordNotServing(err error) {
	c.recordFailure(StateStarting, err)
}

// recordCrash records why the program or step failed, and counts a restart.
func (c *supervisedComponent) recordCrash(err error) {
	c.recordFailure(StateCrashed, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.Restarts++
}

// recordFailure records the state and why the component does not serve: its cause if there is one, and otherwise err.
func (c *supervisedComponent) recordFailure(state State, err error) {
	cause := c.cause()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setStateLocked(state, "")
	c.status.Message, c.status.Blocked = failureMessage(err, cause)
	c.messageIsCause = cause != nil
}

// cause returns the result of Cause, or nil if the component has no Cause.
func (c *supervisedComponent) cause() error {
	if c.Cause == nil {
		return nil
	}
	return c.Cause()
}

// failureMessage returns why a component does not serve, and whether a person must act before it can.
func failureMessage(err, cause error) (message string, blocked bool) {
	if cause != nil {
		return cause.Error(), true
	}
	return err.Error(), errors.As(err, new(*blockedError))
}

// awaitReady checks the component until it is ready or ctx ends, and records each result. ctx lives as long as the
// component's program.
func (c *supervisedComponent) awaitReady(ctx context.Context) {
	for {
		err := checkOnce(ctx, c.Ready)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.becomeReady()
			return
		}
		if c.Usable != nil && checkOnce(ctx, c.Usable) == nil {
			closeOnce(c.firstUsable)
		}
		c.recordNotServing(err)
		if !sleep(ctx, readyInterval) {
			return
		}
	}
}

// checkOnce runs a check with a timeout of one second.
func checkOnce(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return check(ctx)
}

// awaitDependency sets the state Waiting and waits until the channel closed is closed. The channel belongs to the
// component called name. awaitDependency reports false if ctx ends first.
func (c *supervisedComponent) awaitDependency(ctx context.Context, name string, closed <-chan struct{}) bool {
	c.setState(StateWaiting, "for "+name)
	select {
	case <-closed:
		return true
	case <-ctx.Done():
		return false
	}
}

// isClosed reports whether c is closed. The channel must never receive a value.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// closeOnce closes a channel unless it is already closed. The caller holds mu or is the only one that closes the
// channel.
func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}

// becomeReady records that the component is ready, unless its program has exited since the check.
func (c *supervisedComponent) becomeReady() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil && c.Run == nil {
		return
	}
	c.setStateLocked(StateReady, "")
	closeOnce(c.firstUsable)
	closeOnce(c.firstReady)
}

// setWanted records whether the component should run, and wakes supervise.
func (c *supervisedComponent) setWanted(wanted bool) {
	c.mu.Lock()
	c.wanted = wanted
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// isWanted reports whether the component should run.
func (c *supervisedComponent) isWanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted
}

// awaitWanted waits until the component should run. Until then, the state is Stopped. It reports false if ctx has
// ended.
func (c *supervisedComponent) awaitWanted(ctx context.Context) bool {
	for !c.isWanted() {
		c.setState(StateStopped, "")
		select {
		case <-c.changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// awaitRestart waits for d before the next start. It returns early if ctx ends, if a client starts or stops the
// component, or if the cause of the last failure is gone.
func (c *supervisedComponent) awaitRestart(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		blocked := c.currentStatus().Blocked
		select {
		case <-time.After(min(causeInterval, time.Until(end))):
		case <-c.changed:
			return
		case <-ctx.Done():
			return
		}
		if blocked && !c.currentStatus().Blocked {
			return
		}
	}
}

// stop keeps the component from starting again. If its program runs, stop terminates it with SIGTERM, or with SIGKILL
// after stopGrace, and returns when it has exited. stop does not interrupt a step.
func (c *supervisedComponent) stop() {
	c.setWanted(false)
	c.mu.Lock()
	process, ended := c.process, c.ended
	c.mu.Unlock()
	if process == nil {
		return
	}
	_ = process.Signal(syscall.SIGTERM) // fails only if the process has just exited
	select {
	case <-ended:
	case <-time.After(stopGrace):
		_ = process.Kill()
		<-ended
	}
}

// kill kills the program, if it runs, with SIGKILL. It returns when the program has exited, so that a caller does not
// see the old program as ready.
func (c *supervisedComponent) kill() {
	c.mu.Lock()
	process, ended := c.process, c.ended
	c.killed = process != nil
	c.mu.Unlock()
	if process != nil {
		_ = process.Kill()
		<-ended
	}
}

// consumeKilled reports whether kill requested the last exit, and clears killed. Such an exit resets the restart delay.
func (c *supervisedComponent) consumeKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	killed := c.killed
	c.killed = false
	return killed
}

// sleep waits for d. It reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
