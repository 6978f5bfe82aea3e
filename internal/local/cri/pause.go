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

// startPause starts the first process of a PID namespace that the containers of a pod share. The caller writes a byte
// to start once the process ID is on disk. The process exits if start is closed without that byte.
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
	return id, w, cmd.Process.Release() // process.wait reaps it through its pidfd
}

// stopPause kills the sandbox's pause process, if there is one.
func (s *server) stopPause(ctx context.Context, sb *sandbox) error {
	p, err := sb.Pause.open()
	if err != nil {
		return nil // there is none, or it has exited
	}
	defer p.close()
	return p.kill(ctx)
}
