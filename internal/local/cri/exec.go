package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// inside starts a command in the container: with its namespaces, files, user, environment and limits. prepare
// completes the command on a thread that is inside already. The caller waits for the command; it is killed, with its
// process group, when ctx or the container ends.
func (s *server) inside(ctx context.Context, id string, argv []string, prepare func(*command) error) (*command, error) {
	c, p, err := s.running(id)
	if err != nil {
		return nil, err
	}
	if len(argv) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no command to run")
	}
	x := &command{cmd: &exec.Cmd{
		Args: argv, Env: c.spec.Env, Dir: c.spec.Cwd, SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: c.spec.Cred},
	}}
	err = onThread(func() error {
		if err := join(c, p); err != nil {
			return fmt.Errorf("entering the container: %w", err)
		}
		if err := shim.Confine(c.spec); err != nil {
			return fmt.Errorf("dropping privileges: %w", err)
		}
		if x.cmd.Path, err = c.spec.LookPath(argv[0]); err != nil {
			return err
		}
		if err := prepare(x); err != nil {
			return err
		}
		return x.cmd.Start()
	})
	x.release()
	if err != nil {
		return nil, err
	}
	// The score is the kubelet's until now. As in the shim, lowering it may be denied.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", x.cmd.Process.Pid), []byte(strconv.Itoa(c.spec.OOMScoreAdj)), 0o644)
	kill := func() { _ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL) }
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
			kill()
		case <-c.ended:
			kill()
		case <-done:
		}
	})
	x.stop = func() {
		close(done)
		watch.Wait()
	}
	return x, nil
}

// join puts the calling thread into the container's namespaces; a PID namespace takes effect for its children.
func join(c *container, p *process) error {
	// Only a thread that shares its root and working directory with no other may change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	unix.Umask(0o022) // this thread's alone from here on
	flags := unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS
	if !c.spec.HostPID {
		flags |= unix.CLONE_NEWPID
	}
	return p.control(func(fd int) error { return unix.Setns(fd, flags) })
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
	x, err := s.inside(ctx, q.ContainerId, q.Cmd, func(x *command) error {
		return errors.Join(x.send(&x.cmd.Stdout, &stdout), x.send(&x.cmd.Stderr, &stderr))
	})
	if err != nil {
		return nil, err
	}
	err = x.wait()
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
