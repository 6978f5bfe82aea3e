package shim

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// stdio is a command's standard input, output and error.
type stdio struct {
	command  [3]*os.File // the command's side
	stdin    *os.File    // the shim's side of the input, nil for /dev/null
	terminal *os.File    // the terminal's master, nil without one
	stdout   *os.File
	stderr   *os.File
}

// openStdio creates the command's pipes or terminal.
func openStdio(spec *Spec) (*stdio, error) {
	if spec.TTY {
		return openTerminal(spec)
	}
	s := &stdio{}
	var err error
	if s.stdout, s.command[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.stderr, s.command[2], err = os.Pipe(); err != nil {
		return nil, err
	}
	if spec.Stdin {
		s.command[0], s.stdin, err = os.Pipe()
	} else {
		s.command[0], err = os.Open("/dev/null")
	}
	if err != nil || spec.Cred == nil {
		return s, err
	}
	// The pipes belong to the command's user, so that the command can open /dev/stdout by path.
	for _, f := range s.command[1:] {
		if err := f.Chown(int(spec.Cred.Uid), int(spec.Cred.Gid)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// openTerminal creates the command's terminal.
func openTerminal(spec *Spec) (*stdio, error) {
	master, slave, err := OpenTerminal()
	if err != nil {
		return nil, err
	}
	if spec.Cred != nil {
		if err := slave.Chown(int(spec.Cred.Uid), -1); err != nil {
			return nil, err
		}
	}
	return &stdio{command: [3]*os.File{slave, slave, slave}, stdin: master, terminal: master, stdout: master}, nil
}

// OpenTerminal returns both ends of a new pseudo terminal in the /dev of the calling thread's mount namespace.
func OpenTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("unlocking a terminal: %w", err)
	}
	// TIOCGPTPEER opens the right slave whatever is mounted at /dev/pts; a path might not.
	fd, _, e := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		master.Close()
		return nil, nil, fmt.Errorf("opening a terminal: %w", e)
	}
	return master, os.NewFile(fd, "terminal"), nil
}

// descriptors returns the file descriptors of the command's standard input, output and error.
func (s *stdio) descriptors() []uintptr {
	return []uintptr{s.command[0].Fd(), s.command[1].Fd(), s.command[2].Fd()}
}

// started closes the command's side in the shim after the command has inherited it.
func (s *stdio) started() {
	for _, f := range s.command {
		f.Close()
	}
}

// pump copies the output until it ends.
func (s *stdio) pump(out *output) {
	var wg sync.WaitGroup
	wg.Go(func() { out.pump(s.stdout, FrameStdout, "stdout") })
	if s.stderr != nil {
		wg.Go(func() { out.pump(s.stderr, FrameStderr, "stderr") })
	}
	wg.Wait()
}
