// Package cmd_test tests properties of whole programs.
package cmd_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestServersStartNoPrograms verifies that none of our packages in the programs of an installation can start another
// program. They therefore cannot pass the text of a user to a shell.
func TestServersStartNoPrograms(t *testing.T) {
	const ours = "tensorstack.dev/batch/"
	for _, name := range []string{"t9k-operator", "t9k-scheduler", "t9k-console"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}: {{join .Imports \" \"}}", "./"+name).Output()
		if err != nil {
			t.Fatalf("listing the packages of %s: %v", name, err)
		}
		own := 0
		for line := range strings.Lines(string(out)) {
			pkg, imports, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if !strings.HasPrefix(pkg, ours) {
				continue
			}
			own++
			for _, way := range []string{"os/exec", "syscall", "golang.org/x/sys/unix", "plugin"} {
				// The main package of the console imports syscall only for the name of a signal.
				namesSignals := way == "syscall" && pkg == ours+"cmd/t9k-console"
				if slices.Contains(strings.Fields(imports), way) && !namesSignals {
					t.Errorf("%s has %s, which imports %s", name, pkg, way)
				}
			}
		}
		if own < 5 {
			t.Errorf("%s has %d packages of ours", name, own)
		}
	}
}
