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

// self is this program, even when its file was replaced since it started.
const self = "/proc/self/exe"

// shimEnv keeps the Go runtime of a shim small: it has next to nothing to do.
var shimEnv = []string{"GOMAXPROCS=2", "GOGC=50"}

// launch starts the container's shim in the sandbox's namespaces and returns when the command runs. At whatever
// point this process dies, the shim either is on record or ends by itself.
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
	p, err := s.record(c, pid)
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
		s.remark(remarks)
		return p, nil
	}
	if err == nil {
		err = errors.New(string(answer))
	}
	if len(answer) == 0 {
		err = errors.New("the container's first process ended without a word")
	}
	err = errors.Join(ctx.Err(), err, p.kill(ctx))
	p.close()
	return nil, err
}

// fork starts the shim, which waits for a byte from start before it starts the command.
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
	var shared processID // whose PID namespace the container joins
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
		for _, n := range sb.own() {
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
	return pid, cmd.Process.Release() // it is waited for by its pidfd
}

// record writes down the shim before it may start anything.
func (s *server) record(c *container, pid int) (*process, error) {
	id, err := identify(pid)
	if err != nil {
		return nil, err
	}
	p, err := id.hold()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Process = id
	if err := s.saveContainer(c); err != nil {
		p.close()
		return nil, err // the shim ends with the pipe
	}
	return p, nil
}

// remark logs what a shim could not do as it should, each remark once.
func (s *server) remark(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !s.remarked[line] {
			s.remarked[line] = true
			s.cfg.Log.Info("Containers are limited on this machine", "remark", line)
		}
	}
}

// killPatience is how long a shim gets for the last output and the exit code of a command that was killed.
const killPatience = 3 * time.Second

// stop ends the container: by its stop signal, after the grace period by SIGKILL. It returns when it has ended.
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
	// The shim lives on to record the end, if it can.
	if askToKill(s.cfg.containerDir(c.ID)) == nil {
		if ended, err := c.wait(ctx, killPatience); ended || err != nil {
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

// askToKill lets the shim of the container in dir end the command by SIGKILL.
func askToKill(dir string) error {
	conn, err := dialControl(dir)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte{shim.ControlKill})
	return errors.Join(err, conn.Close())
}

// wait tells whether the container ended within d.
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

// rtSignal adds the "PLUS3" or "MINUS3" of a real-time signal's name to its base.
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

// dialControl connects to the shim of the container in dir, by a path that is short enough for any directory.
func dialControl(dir string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), shim.ControlSock))
}
