// Command t9k-local runs a Kubernetes cluster on this machine, out of this one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	_ "batch.tensorstack.dev/shim" // the first process of each container: this program again
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
	pflag.CommandLine = pflag.NewFlagSet("", pflag.ContinueOnError) // Kubernetes' packages put flags of theirs into it
	err := localcmd.New().ExecuteContext(context.Background())
	if err != nil && !errors.Is(err, localcmd.ErrSilent) {
		fmt.Fprintln(os.Stderr, "t9k local:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}
