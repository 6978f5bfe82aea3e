// Package program runs programs for a test. The programs are killed when the test process exits, however it exits.
// Start reading at Start.
package program

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tensorstack.dev/batch/internal/testing/threads"
	"tensorstack.dev/batch/test/kit/await"
)

// Program is a process that a test has started.
type Program struct {
	// Log is the standard output and standard error of the program.
	Log *Log

	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a program. env contains variables as NAME=VALUE, which are added to the environment of the test
// process. The program runs until it exits or is killed.
func Start(path string, args, env []string) (*Program, error) {
	p := &Program{Log: &Log{}, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	spawner() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the log contains the reason
	}()
	return p, nil
}

// spawner returns the channel to a goroutine that starts all programs on its own OS thread. The kernel kills a program
// when the thread that started it exits, and Go ends a thread when the goroutine that has locked it returns. So this
// goroutine never returns.
var spawner = sync.OnceValue(func() chan<- func() {
	orders := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range orders {
			start()
		}
	}()
	return orders
})

// Kill kills the program with SIGKILL and waits until it has exited.
func (p *Program) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Signal sends a signal to the program. It does nothing if the program has exited.
func (p *Program) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Freeze stops the program with SIGSTOP and waits until all its threads have stopped, because the signal does not stop
// them immediately. SIGCONT continues the program.
func (p *Program) Freeze(t testing.TB) {
	t.Helper()
	p.Signal(syscall.SIGSTOP)
	await.Until(t, "the stop of all threads", func() error { return threads.Stopped(p.cmd.Process.Pid) })
}

// Ended returns a channel that is closed when the program has exited.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// ExitCode waits until the program has exited and returns its exit code; -1 if a signal killed it.
func (p *Program) ExitCode() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// Running reports whether the program is still running.
func (p *Program) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Memory returns the resident memory of the program in bytes.
func (p *Program) Memory() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("reading the memory of %s: %w", p.cmd.Path, err)
	}
	return resident * os.Getpagesize(), nil
}

// EndWith kills the program at the end of the test, and fails the test if the log contains a panic. If the test has
// failed, EndWith logs the end of the program's log.
func (p *Program) EndWith(t testing.TB) {
	t.Cleanup(func() {
		p.Kill()
		if text := p.Log.String(); strings.Contains(text, "panic") {
			t.Errorf("%s panicked:\n%s", p.cmd.Path, text)
		} else if t.Failed() {
			t.Logf("the log of %s ends with:\n%s", p.cmd.Path, Tail(text))
		}
	})
}

// Tail returns the last 4,000 bytes of a log.
func Tail(log string) string {
	const limit = 4000
	return log[max(0, len(log)-limit):]
}

// Log is a buffer that can be read while it is being written. Its zero value is empty.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the text written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
