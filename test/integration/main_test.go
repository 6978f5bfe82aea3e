// Package integration tests the operator and the CRDs on a real API server.
package integration

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"tensorstack.dev/batch/internal/operator"
)

// asOperator is the environment variable that turns this program into the t9k-operator, so that tests have one to kill that
// is never older than the code.
const asOperator = "T9K_TEST_AS_OPERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(asOperator) == "" {
		ctrl.SetLogger(logr.Discard())
		code := m.Run()
		thePlane.stop()
		os.Exit(code)
	}
	cmd := operator.NewCommand()
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "t9k-operator:", err)
		os.Exit(1)
	}
}
