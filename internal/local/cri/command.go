package cri

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	utilexec "k8s.io/utils/exec"
)

// outputDelay is how long processes that a command left behind may keep its output open.
const outputDelay = 5 * time.Second

// command is a program that exec runs in a container. It does not use the pipes of os/exec, because the pipes must
// belong to the command's user: otherwise the user could not open /dev/stdout by name.
type command struct {
	cmd        *exec.Cmd
	childEnds  []*os.File // the command's ends of its pipes, until it has started
	parentEnds []*os.File // the server's ends of the output pipes
	copies     sync.WaitGroup
	stop       func() // ends the goroutine that kills the command with its context or container
}

// pipe returns a pipe that belongs to the command's user.
func (c *command) pipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	user := c.cmd.SysProcAttr.Credential
	if err := w.Chown(int(user.Uid), int(user.Gid)); err != nil {
		return nil, nil, errors.Join(err, r.Close(), w.Close())
	}
	return r, w, nil
}

// copyOutput connects an output of the command to w, or to /dev/null if w is nil.
func (c *command) copyOutput(output *io.Writer, w io.Writer) error {
	if w == nil {
		return nil
	}
	r, child, err := c.pipe()
	if err != nil {
		return err
	}
	*output = child
	c.childEnds, c.parentEnds = append(c.childEnds, child), append(c.parentEnds, r)
	c.copies.Go(func() {
		_, _ = io.Copy(w, r)
		r.Close() // if w failed, the command's next write fails too
	})
	return nil
}

// copyInput connects the command's input to in, or to /dev/null if in is nil. Nothing waits for the copying goroutine,
// because a client may never send anything. The goroutine ends when the streaming server closes in after the command
// has exited.
func (c *command) copyInput(in io.Reader) error {
	if in == nil {
		return nil
	}
	child, w, err := c.pipe()
	if err != nil {
		return err
	}
	c.cmd.Stdin = child
	c.childEnds = append(c.childEnds, child)
	go func() {
		_, _ = io.Copy(w, in)
		w.Close()
	}()
	return nil
}

// closeChildEnds closes the command's ends of the pipes in this process, once the command has inherited them or failed
// to start.
func (c *command) closeChildEnds() {
	for _, f := range c.childEnds {
		f.Close()
	}
}

// wait returns when the command has exited and its output was copied, which takes at most outputDelay longer. For an
// exit code other than 0, the error is a utilexec.CodeExitError.
func (c *command) wait() error {
	err := c.cmd.Wait()
	c.stop()
	t := time.AfterFunc(outputDelay, func() {
		for _, r := range c.parentEnds {
			_ = r.SetReadDeadline(time.Unix(1, 0))
		}
	})
	c.copies.Wait()
	t.Stop()
	return exitError(err)
}

// exitError converts the error of exec.Cmd.Wait to the type from which the streaming server reads exit codes.
func exitError(err error) error {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return err
	}
	code := e.ExitCode()
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}
