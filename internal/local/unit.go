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

// unit is a component under supervision.
type unit struct {
	Component
	usable  chan struct{} // closed when the component is usable for the first time
	served  chan struct{} // closed when the component is ready for the first time
	changed chan struct{} // holds a token after a change of wanted

	mu      sync.Mutex
	status  ComponentStatus
	process *os.Process   // nil while none runs
	ended   chan struct{} // closed when process has ended
	wanted  bool
	killed  bool
	caused  bool // the status tells of Cause
}

func (u *unit) set(state State, message string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setLocked(state, message)
}

func (u *unit) setLocked(state State, message string) {
	if u.status.State != state {
		u.status.Since = time.Now()
	}
	u.status.Name, u.status.State, u.status.Message, u.status.Blocked = u.Name, state, message, false
	u.caused = false
}

// now is the component's status, without a cause that has gone since it was told.
func (u *unit) now() ComponentStatus {
	u.mu.Lock()
	status, caused := u.status, u.caused
	u.mu.Unlock()
	if caused && u.Cause() == nil {
		status.Message, status.Blocked = "starts again", false
	}
	return status
}

// launch starts the program, unless the component was stopped meanwhile.
func (u *unit) launch(cmd *exec.Cmd) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.wanted {
		return context.Canceled
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	u.process, u.ended, u.status.PID = cmd.Process, make(chan struct{}), cmd.Process.Pid
	return nil
}

func (u *unit) gone() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setLocked(StateCrashed, "has just ended")
	close(u.ended)
	u.process, u.status.PID = nil, 0
}

// notYet notes why the program, which runs, does not serve.
func (u *unit) notYet(err error) {
	u.failed(StateStarting, err)
}

func (u *unit) crashed(err error) {
	u.failed(StateCrashed, err)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Restarts++
}

// failed notes why the component does not serve, by its cause where that is known.
func (u *unit) failed(state State, err error) {
	cause := u.cause()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.setLocked(state, "")
	u.status.Message, u.status.Blocked = explain(err, cause)
	u.caused = cause != nil
}

func (u *unit) cause() error {
	if u.Cause == nil {
		return nil
	}
	return u.Cause()
}

// explain says why a component does not serve, and whether somebody has to do something about it first.
func explain(err, cause error) (message string, blocked bool) {
	if cause != nil {
		return cause.Error(), true
	}
	return err.Error(), errors.As(err, new(*blockedError))
}

// awaitReady asks until the component is ready or ctx, the life of its program, ends.
func (u *unit) awaitReady(ctx context.Context) {
	for {
		err := ask(ctx, u.Ready)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			u.becomeReady()
			return
		}
		if u.Usable != nil && ask(ctx, u.Usable) == nil {
			open(u.usable)
		}
		u.notYet(err)
		if !sleep(ctx, readyInterval) {
			return
		}
	}
}

func ask(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return question(ctx)
}

// awaitOther waits until a channel of the component called name is closed.
func (u *unit) awaitOther(ctx context.Context, name string, closed <-chan struct{}) bool {
	u.set(StateWaiting, "for "+name)
	select {
	case <-closed:
		return true
	case <-ctx.Done():
		return false
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// open closes a channel unless it is closed already.
func open(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}

func (u *unit) becomeReady() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.process == nil && u.Run == nil {
		return // it ended after it answered
	}
	u.setLocked(StateReady, "")
	open(u.usable)
	open(u.served)
}

// want says whether the component shall run, and wakes its keeper.
func (u *unit) want(wanted bool) {
	u.mu.Lock()
	u.wanted = wanted
	u.mu.Unlock()
	select {
	case u.changed <- struct{}{}:
	default:
	}
}

func (u *unit) isWanted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.wanted
}

func (u *unit) awaitWanted(ctx context.Context) bool {
	for !u.isWanted() {
		u.set(StateStopped, "")
		select {
		case <-u.changed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// pause waits before the next start, less long when somebody asks for it or has removed the cause of the last end.
func (u *unit) pause(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		blocked := u.now().Blocked
		select {
		case <-time.After(min(causeInterval, time.Until(end))):
		case <-u.changed:
			return
		case <-ctx.Done():
			return
		}
		if blocked && !u.now().Blocked {
			return
		}
	}
}

// stop ends the program: by SIGTERM, and after stopGrace by SIGKILL.
func (u *unit) stop() {
	u.want(false)
	u.mu.Lock()
	process, ended := u.process, u.ended
	u.mu.Unlock()
	if process == nil {
		return
	}
	_ = process.Signal(syscall.SIGTERM) // fails only when it has just ended
	select {
	case <-ended:
	case <-time.After(stopGrace):
		_ = process.Kill()
		<-ended
	}
}

// kill returns when the program is dead, so that whoever asks afterwards does not take it for ready.
func (u *unit) kill() {
	u.mu.Lock()
	process, ended := u.process, u.ended
	u.killed = process != nil
	u.mu.Unlock()
	if process != nil {
		_ = process.Kill()
		<-ended
	}
}

// takeKilled tells once whether the last end was by request, which is no reason to be slower next time.
func (u *unit) takeKilled() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	killed := u.killed
	u.killed = false
	return killed
}

// sleep waits, and tells whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
