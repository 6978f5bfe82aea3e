// Command t9k-console serves the console of an installation of TensorStack Batch.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"tensorstack.dev/batch/internal/console/consolecmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := consolecmd.New().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "t9k-console:", err)
		os.Exit(1)
	}
}
