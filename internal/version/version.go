// Package version holds the version of the programs.
package version

import (
	"fmt"
	"runtime"
)

// Version is set by the linker.
var Version = "devel"

// Line returns what a program prints as its version. Each extra text names a version of what the program is built from.
func Line(program string, extra ...string) string {
	details := ""
	for _, text := range append(extra, runtime.Version(), Platform()) {
		details += ", " + text
	}
	return fmt.Sprintf("%s %s (%s)\n", program, Version, details[len(", "):])
}

// Platform returns the operating system and the architecture of this program.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
