// Package version holds the version of the programs.
package version

// Version is set by the linker.
var Version = "devel"
