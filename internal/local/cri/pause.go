package cri

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"

	"batch.tensorstack.dev/shim"
	"golang.org/x/sys/unix"
)

// startPause starts the first process of a PID namespace that the containers of a pod share. It lives on if a byte is
// written to start, which is to happen once its ID is on disk, and ends when start is closed without.
func startPause() (id processID, start *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return id, nil, err
	}
	defer r.Close()
	cmd := &exec.Cmd{Path: self, Args: []string{shim.Name, shim.Pause}, Env: shimEnv, Dir: "/", ExtraFiles: []*os.File{r}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		return id, nil, errors.Join(err, w.Close())
	}
	if id, err = identify(cmd.Process.Pid); err != nil {
		return id, nil, errors.Join(err, w.Close())
	}
	return id, w, cmd.Process.Release() // it is waited for by its pidfd
}

func (s *server) stopPause(ctx context.Context, sb *sandbox) error {
	p, err := sb.Pause.open()
	if err != nil {
		return nil // none, or gone already
	}
	defer p.close()
	return p.kill(ctx)
}
