// Package local implements "t9k local", which runs the program of the embedded cluster.
package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
)

// program is the name of the program that runs the embedded cluster.
const program = "t9k-local"

// Command returns the command "t9k local".
func Command(p *kit.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "local COMMAND",
		Short: "Start, inspect and remove the embedded cluster of this machine",
		Long: `Run t9k-local, the embedded Kubernetes of this machine, with the given arguments.
The command looks for t9k-local in its own directory and then on PATH.`,
		Example:            p.Example("t9k local up", "t9k local status", "t9k local down"),
		DisableFlagParsing: true,
		ValidArgs:          []string{"up", "status", "logs", "console", "down", "reset", "kubeconfig", "list"},
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findProgram()
			if err != nil {
				return err
			}
			if err := syscall.Exec(path, append([]string{program}, args...), os.Environ()); err != nil {
				return fmt.Errorf("starting %s: %w", path, err)
			}
			return nil
		},
	}
}

// findProgram returns the path of the embedded cluster's program: in the directory of this program, or on PATH.
func findProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			beside := filepath.Join(filepath.Dir(self), program)
			if path, err := exec.LookPath(beside); err == nil {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is neither in the directory of this program nor on PATH; \"make build\" writes both to bin/", program)
	}
	return path, nil
}
