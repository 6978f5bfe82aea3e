// Package version holds the version of the programs.
package version

import (
	"fmt"
	"runtime"
)

// Version is the version of the programs. The linker sets it; "devel" is the default.
var Version = "devel"

// Line returns the version line of a program, with a line break. Each extra text names the version of a component that
// the program contains.
func Line(program string, extra ...string) string {
	details := ""
	for _, text := range append(extra, runtime.Version(), Platform()) {
		details += ", " + text
	}
	return fmt.Sprintf("%s %s (%s)\n", program, Version, details[len(", "):])
}

// Platform returns the operating system and the architecture of this program.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
