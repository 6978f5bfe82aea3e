// Command t9k-local runs a Kubernetes cluster on this machine. The binary contains all components of the cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	// Package shim takes over if this program was started as the first process of a container.
	_ "batch.tensorstack.dev/shim"
	"github.com/spf13/pflag"

	"tensorstack.dev/batch/internal/local/components"
	"tensorstack.dev/batch/internal/local/localcmd"
)

func main() {
	if len(os.Args) > 1 {
		if code, ok := components.Run(os.Args[1], os.Args[2:]); ok {
			os.Exit(code)
		}
	}
	// Kubernetes' packages have added their own flags to the global flag set, so it is replaced.
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError)
	err := localcmd.New().ExecuteContext(context.Background())
	if err != nil && !errors.Is(err, localcmd.ErrSilent) {
		fmt.Fprintln(os.Stderr, "t9k local:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}
