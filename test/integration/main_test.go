// Package integration tests the CRDs, the operator, the scheduler, the console and t9k on a real API server. Most tests
// use the simulated kubelets of test/kit/kubelet.
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"tensorstack.dev/batch/internal/console/consolecmd"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/operator"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/kubelet"
	"tensorstack.dev/batch/test/kit/plane"
)

// asOperator is the environment variable that makes this program run the t9k-operator, so that tests can kill an
// operator that is built from the current code.
const asOperator = "T9K_TEST_AS_OPERATOR"

// asConsole is the environment variable that makes this program run the t9k-console.
const asConsole = "T9K_TEST_AS_CONSOLE"

const (
	// parallelTests is the number of tests that may run at the same time. Most of them wait for a control plane.
	parallelTests = 64
	// planeCount is the number of control planes that the tests share. A test has a control plane to itself while it
	// runs.
	planeCount = 3
)

// operatorUser is the user name of the operator's ServiceAccount.
const operatorUser = "system:serviceaccount:t9k-system:t9k-operator"

// planes holds the shared control planes. Each has an API server, the controllers of Kubernetes that jobs need, and
// simulated kubelets. Each test starts its own operator.
var planes = plane.NewPool(planeCount, func() (*plane.Plane, error) {
	p, err := plane.New(testenv.Options{
		Components:  []string{local.Etcd, local.APIServer, local.CRDs, local.ControllerManager},
		AuditPolicy: audit.Policy("Metadata", operatorUser, schedulerUser, consoleUser),
		Args: map[string][]string{
			// Some clusters require that controllers have the right to block the deletion of an owner.
			local.APIServer: {"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
			local.ControllerManager: {"--controllers=garbage-collector-controller,namespace-controller,resourcequota-controller," +
				"serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller"},
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.OnStop(cancel)
	return p, kubelet.Start(ctx, p.Core)
})

func TestMain(m *testing.M) {
	var cmd *cobra.Command
	switch {
	case os.Getenv(asOperator) != "":
		cmd = operator.NewCommandWithClock(wallClock(os.Getenv(asClock)))
	case os.Getenv(asConsole) != "":
		cmd = consolecmd.New()
	default:
		plane.Main(m, parallelTests, planes)
	}
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, cmd.Name()+":", err)
		os.Exit(1)
	}
}
