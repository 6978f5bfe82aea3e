// Package shim is the first process of every container of the process runtime. Importing it is enough: if the program
// was started under the name [Name], the package's init function runs the container and exits; otherwise it does
// nothing.
//
// The shim builds the container's root file system (an overlay of the host's), enters it, starts the command, copies
// its output into the container's log, forwards signals, reaps orphans and writes the exit code to a file. Nothing is
// lost when the server that started the shim dies.
//
// The package is a separate module, and imports only the standard library and golang.org/x/sys, for one reason: Go
// initializes packages in the order of their import paths, and batch.tensorstack.dev/shim sorts before k8s.io/... . A
// program that contains all of Kubernetes spends about 60 MB and a tenth of a second on the initialization of these
// packages, but a shim runs and exits in the init function of this package, before this initialization begins. The shim
// also avoids the packages of the standard library that are initialized later: net, os/exec and path/filepath. A test
// of package cri checks that no package of Kubernetes is initialized before the shim.
package shim
