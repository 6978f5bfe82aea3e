package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processID identifies a process uniquely. A PID alone does not, because the kernel reuses it.
type processID struct {
	PID   int
	Start uint64 // clock ticks since boot
	Boot  string // the kernel's boot ID
}

// process is a process that is held by a pidfd, so that a signal cannot reach another process with the same PID.
type process struct {
	id processID
	fd *os.File
}

// errGone means that a process has exited or never existed.
var errGone = errors.New("the process is gone")

// identify returns the processID of the running process pid.
func identify(pid int) (processID, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return processID{}, err
	}
	f, err := statFields(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processID{}, err
	}
	start, err := strconv.ParseUint(f[statStart], 10, 64)
	return processID{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, err
}

// Indices of the fields after the process's name in /proc/PID/stat.
const (
	statUTime = 11 // user time in clock ticks; system time and both times of reaped children follow
	statStart = 19
)

// statFields returns the fields after the process's name in a stat file.
func statFields(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name can contain any character
	if len(f) <= statStart {
		return nil, fmt.Errorf("%s has only %d fields", path, len(f))
	}
	return f, nil
}

// open opens a running process, or returns errGone.
func (id processID) open() (*process, error) {
	p, err := id.openChild()
	if err == nil && p.ended() {
		p.close()
		return nil, errGone
	}
	return p, err
}

// alive reports whether the process runs.
func (id processID) alive() bool {
	p, err := id.open()
	if err == nil {
		p.close()
	}
	return err == nil
}

// openChild opens a process that may have exited but was not reaped, such as a child. It returns errGone if there is
// none.
func (id processID) openChild() (*process, error) {
	if id.PID <= 0 {
		return nil, errGone
	}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, errGone
	}
	p := &process{id: id, fd: os.NewFile(uintptr(fd), "pidfd")}
	if now, err := identify(id.PID); err != nil || now != id {
		p.close()
		return nil, errGone
	}
	return p, nil
}

func (p *process) close() { p.fd.Close() }

// signal sends a signal to the process.
func (p *process) signal(sig unix.Signal) error {
	return p.withFD(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// signalIfAlive sends a signal. It succeeds if the process has already exited.
func (p *process) signalIfAlive(sig unix.Signal) error {
	err := p.signal(sig)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// withFD calls f with the pidfd.
func (p *process) withFD(f func(fd int) error) error {
	c, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := c.Control(func(fd uintptr) { result = f(int(fd)) }); err != nil {
		return err
	}
	return result
}

// isReadable reports whether a pidfd is readable, which means that its process has exited.
func isReadable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// ended reports whether the process has exited.
func (p *process) ended() (yes bool) {
	_ = p.withFD(func(fd int) error { yes = isReadable(fd); return nil })
	return yes
}

// wait returns when the process has exited, or with ctx's error. It reaps a child of this process and returns its wait
// status. ok is false for a process that another process reaps.
func (p *process) wait(ctx context.Context) (status unix.WaitStatus, ok bool, err error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = p.fd.SetReadDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	defer func() {
		if !stop() { // the next wait must not return at the deadline of this one
			<-interrupted
			_ = p.fd.SetReadDeadline(time.Time{})
		}
	}()
	c, err := p.fd.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	// The Go runtime's poller waits, so that no thread is blocked for each container.
	if err := c.Read(func(fd uintptr) bool { return isReadable(int(fd)) }); err != nil {
		return 0, false, errors.Join(ctx.Err(), err)
	}
	pid, err := unix.Wait4(p.id.PID, &status, unix.WNOHANG, nil)
	return status, err == nil && pid == p.id.PID, nil
}

// kill kills the process with SIGKILL and returns when it has exited.
func (p *process) kill(ctx context.Context) error {
	if err := p.signalIfAlive(unix.SIGKILL); err != nil {
		return err
	}
	_, _, err := p.wait(ctx)
	return err
}
