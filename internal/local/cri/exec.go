package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// execOutputDelay is how long processes that a command left behind may hold its output open.
const execOutputDelay = 5 * time.Second

// inside starts a command in the container: with its namespaces, files, user, environment and limits. prepare
// completes the command on a thread that is inside already. The caller waits for the command; it is killed, with
// its process group, when ctx or the container ends, until release is called.
func (s *server) inside(ctx context.Context, id string, argv []string, prepare func(*exec.Cmd) error) (cmd *exec.Cmd, release func(), err error) {
	c, p, err := s.running(id)
	if err != nil {
		return nil, nil, err
	}
	if len(argv) == 0 {
		return nil, nil, status.Error(codes.InvalidArgument, "no command to run")
	}
	err = onThread(func() error {
		if err := join(c, p); err != nil {
			return fmt.Errorf("entering the container: %w", err)
		}
		if err := shim.Confine(c.spec); err != nil {
			return fmt.Errorf("dropping privileges: %w", err)
		}
		path, err := c.spec.LookPath(argv[0])
		if err != nil {
			return err
		}
		cmd = &exec.Cmd{
			Path: path, Args: argv, Env: c.spec.Env, Dir: c.spec.Cwd, WaitDelay: execOutputDelay,
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: c.spec.Cred},
		}
		if err := prepare(cmd); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, nil, err
	}
	// The score is the kubelet's until now. As in the shim, lowering it may be denied.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte(strconv.Itoa(c.spec.OOMScoreAdj)), 0o644)
	kill := func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	stopA, stopB := context.AfterFunc(ctx, kill), context.AfterFunc(c.ended, kill)
	return cmd, func() { stopA(); stopB() }, nil
}

// join puts the calling thread into the container's namespaces; a PID namespace takes effect for its children.
func join(c *container, p *process) error {
	// Only a thread that shares its root and working directory with no other may change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	flags := unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS
	if !c.spec.HostPID {
		flags |= unix.CLONE_NEWPID
	}
	return p.control(func(fd int) error { return unix.Setns(fd, flags) })
}

// exitError turns what Wait returned into the kind of error by which the streaming server tells exit codes.
func exitError(err error) error {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		if errors.Is(err, exec.ErrWaitDelay) { // the command itself ended well
			return nil
		}
		return err
	}
	code := e.ExitCode()
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}

// maxOutput is how much of each output ExecSync returns, in bytes, so that its answer stays below maxMessage.
const maxOutput = maxMessage / 4

// limited keeps the first maxOutput bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if room := maxOutput - l.Len(); room < len(b) {
		l.Buffer.Write(b[:room])
	} else {
		l.Buffer.Write(b)
	}
	return len(b), nil
}

// ExecSync runs a command in a container and returns its output and exit code.
func (s *server) ExecSync(ctx context.Context, q *pb.ExecSyncRequest) (*pb.ExecSyncResponse, error) {
	timeout := time.Duration(q.Timeout) * time.Second
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr limited
	cmd, release, err := s.inside(ctx, q.ContainerId, q.Cmd, func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = exitError(cmd.Wait())
	release()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "the command did not end within %s", timeout)
	}
	out := &pb.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		out.ExitCode = int32(exit.Code)
		return out, nil
	}
	return out, err
}
