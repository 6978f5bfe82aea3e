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

// processID names a process for good: a PID alone is given to another process one day.
type processID struct {
	PID   int
	Start uint64 // clock ticks since boot
	Boot  string // the kernel's boot ID
}

// process is a process that is held by a pidfd: a signal can never reach another one.
type process struct {
	id processID
	fd *os.File
}

var errGone = errors.New("the process is gone")

// identify returns the name of the running process pid.
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

// Indices into what follows the name in /proc/PID/stat.
const (
	statUTime = 11 // clock ticks; then follow those of the kernel, and of both for the children waited for
	statStart = 19
)

func statFields(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name may hold anything
	if len(f) <= statStart {
		return nil, fmt.Errorf("%s has only %d fields", path, len(f))
	}
	return f, nil
}

// open takes hold of the process, or returns errGone.
func (id processID) open() (*process, error) {
	p, err := id.hold()
	if err == nil && p.ended() {
		p.close()
		return nil, errGone
	}
	return p, err
}

// alive tells whether the process runs.
func (id processID) alive() bool {
	p, err := id.open()
	if err == nil {
		p.close()
	}
	return err == nil
}

// hold is open for a child, which is there until it is waited for.
func (id processID) hold() (*process, error) {
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

func (p *process) signal(sig unix.Signal) error {
	return p.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// signalIfAlive takes it for done if the process has ended.
func (p *process) signalIfAlive(sig unix.Signal) error {
	err := p.signal(sig)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (p *process) control(f func(fd int) error) error {
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

func ended(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

func (p *process) ended() (yes bool) {
	_ = p.control(func(fd int) error { yes = ended(fd); return nil })
	return yes
}

// wait returns when the process has ended, or with ctx's error. A child of this process is reaped, and its wait
// status returned; for others, which another process reaps, ok is false.
func (p *process) wait(ctx context.Context) (status unix.WaitStatus, ok bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := p.fd.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	// The runtime's poller waits, rather than a thread for each container.
	if err := c.Read(func(fd uintptr) bool { return ended(int(fd)) }); err != nil {
		return 0, false, errors.Join(ctx.Err(), err)
	}
	pid, err := unix.Wait4(p.id.PID, &status, unix.WNOHANG, nil)
	return status, err == nil && pid == p.id.PID, nil
}

// kill ends the process and returns when it is gone.
func (p *process) kill(ctx context.Context) error {
	if err := p.signalIfAlive(unix.SIGKILL); err != nil {
		return err
	}
	_, _, err := p.wait(ctx)
	return err
}
