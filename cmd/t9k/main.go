// Command t9k runs batch and training jobs on Kubernetes. Under the name kubectl-t9k, it is a plug-in of kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"tensorstack.dev/batch/internal/cli"
)

func main() {
	// Libraries log errors that they also return. Without this line, the user would see each of them twice.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C stops the program immediately.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}
