// Package shim is the first process of every container of the process runtime. Importing it is enough: when the program
// was started under the name [Name], the package's init function runs the container and ends the process; otherwise it
// does nothing.
//
// The shim builds the container's root file system (an overlay of the host's), enters it, starts the command, copies
// its output into the container's log, forwards signals, reaps orphans and leaves the exit code in a file, so that
// nothing is lost when the server that started it dies.
//
// It is a module of its own, and imports only the standard library and golang.org/x/sys, for one reason: Go initialises
// packages in the order of their import paths, and batch.tensorstack.dev/shim sorts before k8s.io/... . A program that
// holds all of Kubernetes spends about 60 MB and a tenth of a second on initialising those packages; a shim is done
// before they begin. Of the standard library it avoids what is ready only after them: net, os/exec and path/filepath,
// as a test of package cri checks.
package shim
