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

// startInContainer starts a command in a container, with the container's namespaces, files, user, environment and
// privileges. prepare completes the command on a thread that has already joined the container. The caller must wait for
// the command. The command's process group is killed when ctx ends or the container exits.
func (s *server) startInContainer(ctx context.Context, id string, argv []string, prepare func(*command) error) (*command, error) {
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
	x.closeChildEnds()
	if err != nil {
		return nil, err
	}
	// The command has inherited the kubelet's score. As in the shim, lowering the score may be denied.
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

// join moves the calling thread into the container's namespaces. The PID namespace takes effect only for the children
// of the thread.
func join(c *container, p *process) error {
	// The kernel denies a new mount namespace to a thread that shares its root and working directory with other
	// threads.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	unix.Umask(0o022) // affects only this thread, because CLONE_FS is unshared
	flags := unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS
	if !c.spec.HostPID {
		flags |= unix.CLONE_NEWPID
	}
	return p.withFD(func(fd int) error { return unix.Setns(fd, flags) })
}

// maxOutput is the largest number of bytes of stdout, and of stderr, that ExecSync returns. It keeps the answer below
// maxMessage.
const maxOutput = maxMessage / 4

// limitedBuffer keeps the first maxOutput bytes and discards the rest.
type limitedBuffer struct{ bytes.Buffer }

// Write appends b up to the limit. It never fails.
func (l *limitedBuffer) Write(b []byte) (int, error) {
	if room := maxOutput - l.Len(); room < len(b) {
		l.Buffer.Write(b[:room])
	} else {
		l.Buffer.Write(b)
	}
	return len(b), nil
}

// ExecSync runs a command in a container and returns its output and exit code. If the command exceeds the timeout of
// the request, ExecSync kills it and returns DeadlineExceeded. A timeout of 0 means none.
func (s *server) ExecSync(ctx context.Context, q *pb.ExecSyncRequest) (*pb.ExecSyncResponse, error) {
	timeout := time.Duration(q.Timeout) * time.Second
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr limitedBuffer
	x, err := s.startInContainer(ctx, q.ContainerId, q.Cmd, func(x *command) error {
		return errors.Join(x.copyOutput(&x.cmd.Stdout, &stdout), x.copyOutput(&x.cmd.Stderr, &stderr))
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
