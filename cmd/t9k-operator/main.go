// Command t9k-operator runs the controllers of TensorStack Batch.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/operator"
)

func main() {
	if err := operator.NewCommand(&configv1alpha1.OperatorConfiguration{}).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "t9k-operator:", err)
		os.Exit(1)
	}
}
