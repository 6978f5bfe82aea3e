package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// spaceEnv is the environment variable that identifies the processes of a test.
const spaceEnv = "E2E_SPACE"

// process is a process of a container. Its IDs are those of the PID namespace of the machine.
type process struct {
	pid, parent int
	command     []string
}

// processes returns those processes of a pod in whose environment spaceEnv names this space.
func (s *space) processes(pod string) []process {
	s.Helper()
	var found []process
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.Fatal(err)
	}
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue // the process has exited, or does not belong to the pod
		}
		env := bytes.Split(environ, []byte{0})
		has := func(text string) bool {
			return slices.ContainsFunc(env, func(e []byte) bool { return string(e) == text })
		}
		if !has("HOSTNAME="+pod) || !has(spaceEnv+"="+s.Namespace) {
			continue
		}
		p, err := readProcess(dir)
		if err == nil {
			found = append(found, p)
		}
	}
	return found
}

func readProcess(dir string) (process, error) {
	var p process
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, err
	}
	// The process name is in parentheses and may contain any character.
	var state string
	if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &p.parent); err != nil {
		return p, err
	}
	if p.pid, err = strconv.Atoi(filepath.Base(dir)); err != nil {
		return p, err
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	for _, arg := range bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
		p.command = append(p.command, string(arg))
	}
	return p, err
}

// mainProcess waits for the main process of a pod's container, whose parent is outside the container, and returns it.
func (s *space) mainProcess(pod string) process {
	s.Helper()
	var found process
	s.Await("pod "+pod+" has a process", func() error {
		all := s.processes(pod)
		i := slices.IndexFunc(all, func(p process) bool {
			return !slices.ContainsFunc(all, func(q process) bool { return q.pid == p.parent })
		})
		if i < 0 {
			return errors.New("it has no process")
		}
		found = all[i]
		return nil
	})
	return found
}

// awaitEnded waits until the processes have exited.
func (s *space) awaitEnded(all ...process) {
	s.Helper()
	for _, p := range all {
		s.Await(fmt.Sprintf("process %d has ended", p.pid), func() error {
			if err := unix.Kill(p.pid, 0); !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("%q runs: %w", p.command, err)
			}
			return nil
		})
	}
}

// kill kills a process from outside its container.
func (s *space) kill(p process) {
	s.Helper()
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
		s.Fatalf("killing process %d, %q: %v", p.pid, p.command, err)
	}
}
