package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a child process. The kernel kills it when its parent dies.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	// replaced is true once another process takes over. The exit of this process is then not a failure.
	replaced atomic.Bool
}

func startProcess(dir, name, program string, args, env []string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the log holds the reason
	}()
	return p, nil
}

// stop sends SIGTERM to the process, and SIGKILL after ten seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// cpu returns the processor time that the process has used so far.
func (p *process) cpu() (time.Duration, error) {
	cpu, err := cpuOf(p.cmd.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.name, err)
	}
	return cpu, nil
}

// cpuOf returns the processor time that the process with this ID has used so far.
func cpuOf(pid int) (time.Duration, error) {
	// processClock is the kernel's CPUCLOCK_SCHED: the clock of the CPU time of a process. The upper bits of the
	// clock's ID are the bitwise complement of the PID.
	const processClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &t); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memory returns the resident memory of the process in MiB: the present and the highest value.
func (p *process) memory() (now, peak float64, err error) {
	all, err := fields(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading the memory of %s: %w", p.name, err)
	}
	return all["VmRSS"], all["VmHWM"], nil
}

// fields returns the amounts of memory in a file of /proc in MiB, by the name of the field.
func fields(path string) (map[string]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		if kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64); err == nil {
			all[name] = kib / 1024
		}
	}
	return all, nil
}

// tail returns the last 2,000 bytes of the process's log.
func (p *process) tail() string {
	const limit = 2000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-limit):])
}
