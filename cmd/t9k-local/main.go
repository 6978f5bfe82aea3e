// Command t9k-local runs a Kubernetes cluster on this machine, out of this one binary.
package main

import (
	"context"
	"fmt"
	"os"

	_ "batch.tensorstack.dev/shim" // the first process of each container: this program again

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/local/components"
)

func main() {
	if len(os.Args) > 1 {
		if code, ok := components.Run(os.Args[1], os.Args[2:]); ok {
			os.Exit(code)
		}
	}
	if err := local.NewCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "t9k-local:", err)
		os.Exit(1)
	}
}
