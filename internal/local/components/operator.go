package components

import (
	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"tensorstack.dev/batch/internal/operator"
)

// newOperatorCommand returns the operator's command with a context that ends at SIGTERM or SIGINT.
func newOperatorCommand() *cobra.Command {
	cmd := operator.NewCommand()
	cmd.SetContext(genericapiserver.SetupSignalContext())
	return cmd
}
