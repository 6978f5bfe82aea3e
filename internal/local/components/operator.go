package components

import (
	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"tensorstack.dev/batch/internal/operator"
)

func newOperatorCommand() *cobra.Command {
	cmd := operator.NewCommand()
	cmd.SetContext(genericapiserver.SetupSignalContext())
	return cmd
}
