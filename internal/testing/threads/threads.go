// Package threads checks whether all threads of a process have stopped after SIGSTOP, because the signal does not stop
// them immediately.
package threads

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Stopped returns an error if a thread of the process has not stopped, or if there is no such process.
func Stopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return fmt.Errorf("there is no process %d", pid)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		// The state follows the name, which is in parentheses.
		if _, state, found := strings.Cut(string(stat), ") "); err == nil && found && state[0] != 'T' {
			return fmt.Errorf("a thread of process %d is in state %c", pid, state[0])
		}
	}
	return nil
}
