package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// self is the path of this program. It remains valid if the program's file is replaced.
const self = "/proc/self/exe"

// shimEnv is the environment of a shim. It keeps the Go runtime of the shim small.
var shimEnv = []string{"GOMAXPROCS=2", "GOGC=50"}

// launch starts the container's shim in the sandbox's namespaces and returns when the command runs. If this process
// dies at any point, the shim is either recorded or exits by itself.
func (s *server) launch(ctx context.Context, c *container) (*process, error) {
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer statusR.Close()
	goR, goW, err := os.Pipe()
	if err != nil {
		statusW.Close()
		return nil, err
	}
	defer goW.Close()
	pid, err := s.fork(c, statusW, goR)
	statusW.Close()
	goR.Close()
	if err != nil {
		return nil, err
	}
	p, err := s.recordShim(c, pid)
	if err != nil {
		return nil, err
	}
	if _, err := goW.Write([]byte{1}); err != nil && !errors.Is(err, unix.EPIPE) {
		return nil, errors.Join(err, p.kill(ctx))
	}
	stop := context.AfterFunc(ctx, func() { _ = statusR.SetReadDeadline(time.Unix(1, 0)) })
	answer, err := io.ReadAll(statusR)
	stop()
	first, remarks, _ := strings.Cut(string(answer), "\n")
	if err == nil && first == shim.StatusOK {
		s.logRemarks(remarks)
		return p, nil
	}
	if err == nil {
		err = errors.New(string(answer))
	}
	if len(answer) == 0 {
		err = errors.New("the container's first process ended without reporting a status")
	}
	err = errors.Join(ctx.Err(), err, p.kill(ctx))
	p.close()
	return nil, err
}

// fork starts the shim. The shim waits for a byte from start before it starts the command.
func (s *server) fork(c *container, status, start *os.File) (pid int, err error) {
	options := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	cmd := &exec.Cmd{
		Path: self, Args: []string{shim.Name}, Env: shimEnv, Dir: s.cfg.containerDir(c.ID), ExtraFiles: []*os.File{status, start},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNS},
	}
	s.mu.Lock()
	sb := s.sandboxes[c.Sandbox]
	ready := sb != nil && sb.Ready
	s.mu.Unlock()
	if !ready {
		return 0, fmt.Errorf("sandbox %s is not ready", c.Sandbox)
	}
	var shared processID // process whose PID namespace the container joins; zero for none
	switch options.GetPid() {
	case pb.NamespaceMode_CONTAINER:
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID
	case pb.NamespaceMode_POD:
		shared = sb.Pause
	case pb.NamespaceMode_TARGET:
		_, target, err := s.running(options.GetTargetId())
		if err != nil {
			return 0, err
		}
		shared = target.id
	}
	err = onThread(func() error {
		for _, n := range sb.namespaces() {
			if err := setns(filepath.Join(s.cfg.sandboxDir(sb.ID), n.name), n.flag); err != nil {
				return fmt.Errorf("joining the pod's %s namespace: %w", n.name, err)
			}
		}
		if shared.PID != 0 {
			if err := setns(fmt.Sprintf("/proc/%d/ns/pid", shared.PID), unix.CLONE_NEWPID); err != nil {
				return fmt.Errorf("joining the PID namespace: %w", err)
			}
		}
		return cmd.Start()
	})
	if err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release() // process.wait reaps it through its pidfd
}

// recordShim writes the shim's process ID to the state file before the shim may start the command.
func (s *server) recordShim(c *container, pid int) (*process, error) {
	id, err := identify(pid)
	if err != nil {
		return nil, err
	}
	p, err := id.openChild()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Process = id
	if err := s.saveContainer(c); err != nil {
		p.close()
		return nil, err // the shim exits when the caller closes the pipe
	}
	return p, nil
}

// logRemarks logs the limitations that a shim reported, one per line. It logs each limitation only once.
func (s *server) logRemarks(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !s.loggedRemarks[line] {
			s.loggedRemarks[line] = true
			s.cfg.Log.Info("Containers are limited on this machine", "remark", line)
		}
	}
}

// killReportTimeout is how long a shim may take to write the last output and the exit code of a killed command.
const killReportTimeout = 3 * time.Second

// stop stops the container with its stop signal and, after the grace period, with SIGKILL. It returns when the
// container has exited. It does nothing if the container does not run.
func (s *server) stop(ctx context.Context, c *container, grace time.Duration) error {
	s.mu.Lock()
	p := c.process
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	if grace > 0 {
		if err := p.signalIfAlive(c.stopSignal()); err != nil {
			return fmt.Errorf("signalling container %s: %w", c.ID, err)
		}
		if ended, err := c.wait(ctx, grace); ended || err != nil {
			return err
		}
	}
	// Killing the command through the shim lets the shim record the exit.
	if askToKill(s.cfg.containerDir(c.ID)) == nil {
		if ended, err := c.wait(ctx, killReportTimeout); ended || err != nil {
			return err
		}
	}
	if err := p.signalIfAlive(unix.SIGKILL); err != nil {
		return fmt.Errorf("killing container %s: %w", c.ID, err)
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of container %s: %w", c.ID, ctx.Err())
	}
}

// askToKill asks the shim of the container in dir to kill the command. It does not wait.
func askToKill(dir string) error {
	conn, err := dialControl(dir)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte{shim.ControlKill})
	return errors.Join(err, conn.Close())
}

// wait waits for at most d and reports whether the container has exited.
func (c *container) wait(ctx context.Context, d time.Duration) (ended bool, err error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.ended:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, fmt.Errorf("waiting for the end of container %s: %w", c.ID, ctx.Err())
	}
}

// stopSignal returns the signal that asks the container's command to exit.
func (c *container) stopSignal() unix.Signal {
	if c.config.StopSignal == pb.Signal_RUNTIME_DEFAULT {
		return unix.SIGTERM
	}
	name := c.config.StopSignal.String()
	if rest, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
		return unix.Signal(rtSignal(34, rest))
	}
	if rest, ok := strings.CutPrefix(name, "SIGRTMAX"); ok {
		return unix.Signal(rtSignal(64, rest))
	}
	if n := unix.SignalNum(name); n != 0 {
		return n
	}
	return unix.SIGTERM
}

// rtSignal adds the offset at the end of a real-time signal's name, such as PLUS3 or MINUS3, to base.
func rtSignal(base int, offset string) int {
	var n int
	if _, err := fmt.Sscanf(offset, "PLUS%d", &n); err == nil {
		return base + n
	}
	if _, err := fmt.Sscanf(offset, "MINUS%d", &n); err == nil {
		return base - n
	}
	return base
}

// dialControl connects to the control socket of the shim in dir. It uses a path that fits a Unix socket address
// regardless of the length of dir.
func dialControl(dir string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), shim.ControlSock))
}
