package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// Name is the argv[0] under which a program that imports this package becomes a shim. Its working directory is then the
// container's directory, file descriptor 3 is the write end of the status pipe, and 4 is the read end of the start
// pipe.
//
// The shim prepares the container and waits for one byte on the start pipe. End of file means that the server died, and
// the shim exits without starting the command. Otherwise it starts the command. To the status pipe it writes [StatusOK]
// followed by remarks, one per line, or the reason why the container cannot run.
const Name = "t9k-shim"

// Pause is the only argument of a process that holds a PID namespace and reaps the processes that exit in it. The
// process begins when it reads a byte from file descriptor 3, and exits if it reads end of file.
const Pause = "pause"

// StatusOK is the first line on the status pipe if the command runs.
const StatusOK = "ok"

// Files in the container's directory.
const (
	SpecFile    = "spec.json" // written by the server: a Spec
	StartedFile = "started"   // exists if the command may have been started
	ExitFile    = "exit.json" // written last: an Exit
	ControlSock = "control"   // control.go describes its protocol
)

// StartFailed is the exit code of a container whose command could not be started.
const StartFailed = 128

// Spec is the description of one container.
type Spec struct {
	Argv []string
	Env  []string // KEY=VALUE, each key once
	Cwd  string   // created if it does not exist

	LogPath   string // path of the CRI log on the host; empty for none
	TTY       bool
	Stdin     bool // keep standard input open for attach; otherwise it is /dev/null
	StdinOnce bool // close standard input when an attached client disconnects or ends its input

	Mounts []Mount  // in the order in which they are mounted
	Shm    string   // host directory for /dev/shm
	Hide   []string // host directories that the container sees empty
	// MaskedPaths are covered and ReadOnlyPaths are made read-only. Paths that do not exist are ignored.
	MaskedPaths, ReadOnlyPaths []string

	HostNet, HostPID bool // use the host's namespace, which /sys and /proc then show
	Privileged       bool // all devices, writable /sys
	ReadOnlyRoot     bool
	NoNewPrivs       bool
	Rootless         bool      // inside a user namespace
	DropCaps         []uintptr // capabilities taken from the bounding set
	Cred             *syscall.Credential
	OOMScoreAdj      int
}

// Mount shows a file or directory of the host at Dst.
type Mount struct {
	Src, Dst          string
	ReadOnly          bool
	RecursiveReadOnly bool
	Propagation       uint64 // MS_PRIVATE, MS_SLAVE or MS_SHARED
}

// Exit is the content of the exit file.
type Exit struct {
	Code     int32 // 128 + the signal's number for a command that was killed by a signal
	Finished int64 // Unix time in nanoseconds
	Message  string
}

// LookPath finds a program in the container's PATH, whose relative entries refer to Cwd. It returns a name with a slash
// unchanged. It uses the file system of the calling thread.
func (s *Spec) LookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range s.Env {
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			if !path.IsAbs(dir) {
				dir = path.Join(s.Cwd, dir)
			}
			p := path.Join(dir, name)
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("%q: executable file not found in $PATH", name)
}

// readSpec reads the description from the working directory.
func readSpec() (*Spec, error) {
	b, err := os.ReadFile(SpecFile)
	if err != nil {
		return nil, err
	}
	s := &Spec{}
	return s, json.Unmarshal(b, s)
}
