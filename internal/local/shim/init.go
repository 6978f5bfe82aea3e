package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	// Capabilities and no_new_privs belong to a thread. The command inherits those of the thread that starts it.
	runtime.LockOSThread()
	if len(os.Args) == 2 && os.Args[1] == Pause {
		os.Exit(pause())
	}
	os.Exit(run())
}

// run is the main function of a shim. It returns the command's exit code, or StartFailed if the command did not start,
// so that the parent gets it even if the exit file cannot be written.
func run() int {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	unix.Umask(0o022)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(Name+"\x00"))), 0, 0, 0) // for ps only
	st, start := os.NewFile(3, "status"), os.NewFile(4, "go")
	c, err := prepare()
	if err != nil {
		fmt.Fprint(st, err)
		return StartFailed
	}
	if n, err := start.Read(make([]byte, 1)); n == 0 || err != nil {
		return StartFailed // the server has died, and the next one starts the container again
	}
	start.Close()
	if err := c.start(); err != nil {
		c.writeExit(Exit{Code: StartFailed, Finished: time.Now().UnixNano(), Message: err.Error()})
		fmt.Fprint(st, err)
		return StartFailed
	}
	fmt.Fprint(st, strings.Join(append([]string{StatusOK}, c.remarks...), "\n"))
	st.Close()
	return int(c.supervise())
}

// container is the container that this shim prepares and runs.
type container struct {
	spec     *Spec
	dir      int // the container's directory, which has no path in the new root
	out      *output
	listener *os.File
	signals  chan os.Signal
	path     string // of the command
	remarks  []string

	control *control
	pumps   chan struct{} // closed when the output has ended
	pid     int
}

// prepare builds the container's root and drops privileges. Then only the command remains to be started.
func prepare() (*container, error) {
	s, err := readSpec()
	if err != nil {
		return nil, fmt.Errorf("reading the container's description: %w", err)
	}
	c := &container{spec: s, pumps: make(chan struct{}), signals: make(chan os.Signal, 64)}
	if c.dir, err = unix.Open(".", unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	for _, f := range []string{ControlSock, StartedFile, ExitFile} { // from an earlier attempt
		if err := os.Remove(f); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	if c.listener, err = listen(); err != nil {
		return nil, err
	}
	l, err := openLog(s.LogPath)
	if err != nil {
		return nil, fmt.Errorf("opening the log %s: %w", s.LogPath, err)
	}
	c.out = &output{log: l, clients: map[*os.File]bool{}}
	signal.Notify(c.signals)
	for _, sig := range []uintptr{32, 33} { // glibc's posix_spawn leaves these ignored, and Go cannot reset them
		var standard [4]uint64 // struct sigaction: SIG_DFL, no flags
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&standard)), 0, 8, 0, 0)
	}
	root := &rootfs{spec: s}
	if err := root.build(); err != nil {
		return nil, fmt.Errorf("building the root file system: %w", err)
	}
	c.remarks = root.remarks
	if err := c.dropPrivileges(); err != nil {
		return nil, fmt.Errorf("dropping privileges: %w", err)
	}
	return c, c.findCommand()
}

// dropPrivileges drops the privileges that the command must not have. The shim itself keeps its capabilities.
// dropPrivileges also makes the shim a subreaper and sets its OOM score, which the command inherits.
func (c *container) dropPrivileges() error {
	if err := Confine(c.spec); err != nil {
		return err
	}
	// Without this setting, the orphans of a container without a PID namespace would become children of the host's
	// init.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	// Lowering the score needs CAP_SYS_RESOURCE. Without it the container runs with a higher score.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(c.spec.OOMScoreAdj)), 0o644)
	return nil
}

// findCommand creates and enters the working directory and looks up the command in the container's PATH.
func (c *container) findCommand() error {
	if err := os.MkdirAll(c.spec.Cwd, 0o755); err != nil {
		return fmt.Errorf("making the working directory: %w", err)
	}
	if err := os.Chdir(c.spec.Cwd); err != nil {
		return fmt.Errorf("entering the working directory: %w", err)
	}
	var err error
	c.path, err = c.spec.LookPath(c.spec.Argv[0])
	return err
}

// start records that the command may have been started, and then starts the command, its input and output, and the
// control socket.
func (c *container) start() error {
	fd, err := unix.Openat(c.dir, StartedFile, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("recording the start: %w", err)
	}
	unix.Close(fd)
	s, err := openStdio(c.spec)
	if err != nil {
		return fmt.Errorf("making the command's input and output: %w", err)
	}
	attr := &syscall.SysProcAttr{Setsid: true, Setctty: c.spec.TTY, Credential: c.spec.Cred, Pdeathsig: unix.SIGKILL}
	// os.StartProcess is not used: it first starts a process to test features of the kernel.
	c.pid, err = syscall.ForkExec(c.path, c.spec.Argv, &syscall.ProcAttr{Dir: c.spec.Cwd, Env: c.spec.Env, Files: s.descriptors(), Sys: attr})
	if err != nil {
		return &os.PathError{Op: "exec", Path: c.path, Err: err}
	}
	s.started()
	c.control = &control{out: c.out, stdin: s.stdin, terminal: s.terminal, stdinOnce: c.spec.StdinOnce, pid: c.pid}
	go c.control.serve(c.listener) // ends with this process, which answers clients while the container lives
	go func() {
		s.pump(c.out)
		close(c.pumps)
	}()
	return nil
}

// supervise forwards signals and reaps processes until the command exits. It then calls finish and returns the
// command's exit code.
func (c *container) supervise() int32 {
	for sig := range c.signals {
		n, ok := sig.(syscall.Signal)
		switch {
		case !ok, n == unix.SIGURG, n == unix.SIGPIPE: // the Go runtime uses these signals itself
		case n == unix.SIGCHLD:
			if ws, ended := c.reap(); ended {
				return c.finish(ws)
			}
		default:
			_ = unix.Kill(c.pid, n)
		}
	}
	return StartFailed
}

// reap reaps the children that have exited, and reports whether the command is one of them.
func (c *container) reap() (status unix.WaitStatus, ended bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return status, ended
		}
		if pid == c.pid && (ws.Exited() || ws.Signaled()) {
			c.control.ended.Store(true)
			status, ended = ws, true
		}
	}
}

// outputGrace is how long the rest of the output may take after all processes of the container have exited.
const outputGrace = 2 * time.Second

// finish kills the remaining processes and records the exit code of the command.
func (c *container) finish(ws unix.WaitStatus) int32 {
	e := Exit{Code: int32(ws.ExitStatus()), Finished: time.Now().UnixNano()}
	if ws.Signaled() {
		e.Code = 128 + int32(ws.Signal())
	}
	killRemaining()
	select {
	case <-c.pumps:
	case <-time.After(outputGrace): // a process outside the container holds the pipe
	}
	c.writeExit(e)
	return e.Code
}

// writeExit writes the exit file atomically.
func (c *container) writeExit(e Exit) {
	const temporary = ExitFile + ".tmp"
	fd, err := unix.Openat(c.dir, temporary, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), temporary)
	err = json.NewEncoder(f).Encode(e)
	if f.Close() == nil && err == nil {
		_ = unix.Renameat(c.dir, temporary, c.dir, ExitFile)
	}
}

// killRemaining kills the remaining processes of the container: all processes of the PID namespace if the container has
// one, and otherwise the shim's descendants. Orphans become children of the shim, which is their subreaper.
func killRemaining() {
	if os.Getpid() == 1 { // the container has a PID namespace; in a shared one, kill(-1) would kill processes of others
		_ = unix.Kill(-1, unix.SIGKILL)
		return
	}
	for {
		pids := children()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && err != unix.EINTR {
			return
		}
	}
}

// children lists the shim's child processes.
func children() (pids []int) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	for _, t := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil && n > 1 {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
