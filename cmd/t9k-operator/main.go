// Command t9k-operator runs the controllers and webhooks of TensorStack Batch.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"tensorstack.dev/batch/internal/operator"
)

func main() {
	if err := operator.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "t9k-operator:", err)
		os.Exit(1)
	}
}
