// Command t9k-local runs a Kubernetes cluster on this machine. All components are contained in this one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	// Package shim runs a container if this program was started as the first process of one.
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
	// The flag set is replaced because Kubernetes' packages add their own flags to it.
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError)
	err := localcmd.New().ExecuteContext(context.Background())
	if err != nil && !errors.Is(err, localcmd.ErrSilent) {
		fmt.Fprintln(os.Stderr, "t9k local:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}
