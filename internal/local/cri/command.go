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

// outputDelay is how long processes that a command left behind may hold its output open.
const outputDelay = 5 * time.Second

// command is a program that is about to run, or runs, in a container.
//
// It has pipes of its own making rather than those of package exec: they belong to the command's user, who may then
// open /dev/stdout and its like by name.
type command struct {
	cmd    *exec.Cmd
	theirs []*os.File // the command's ends of its pipes, until it has started
	ours   []*os.File // our ends of its output
	copies sync.WaitGroup
	stop   func() // ends the watch over it
}

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

// send lets an output of the command go to w, or nowhere if w is nil.
func (c *command) send(output *io.Writer, w io.Writer) error {
	if w == nil {
		return nil
	}
	r, theirs, err := c.pipe()
	if err != nil {
		return err
	}
	*output = theirs
	c.theirs, c.ours = append(c.theirs, theirs), append(c.ours, r)
	c.copies.Go(func() {
		_, _ = io.Copy(w, r)
		r.Close() // if w takes no more, the command learns it by its next write
	})
	return nil
}

// receive lets the command read from in. Nobody waits for the copy: a client may never send anything. It ends when the streaming
// server closes in, after the command has ended.
func (c *command) receive(in io.Reader) error {
	if in == nil {
		return nil
	}
	theirs, w, err := c.pipe()
	if err != nil {
		return err
	}
	c.cmd.Stdin = theirs
	c.theirs = append(c.theirs, theirs)
	go func() {
		_, _ = io.Copy(w, in)
		w.Close()
	}()
	return nil
}

// release closes the command's ends of the pipes, once it has its own or will never run.
func (c *command) release() {
	for _, f := range c.theirs {
		f.Close()
	}
}

// wait returns when the command has ended and its output was taken, with an error that tells its exit code.
func (c *command) wait() error {
	err := c.cmd.Wait()
	c.stop()
	t := time.AfterFunc(outputDelay, func() {
		for _, r := range c.ours {
			_ = r.SetReadDeadline(time.Unix(1, 0))
		}
	})
	c.copies.Wait()
	t.Stop()
	return exitError(err)
}

// exitError turns what Wait returned into the kind of error by which the streaming server tells exit codes.
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
