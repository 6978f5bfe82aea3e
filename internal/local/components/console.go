package components

import (
	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"tensorstack.dev/batch/internal/console/consolecmd"
)

// newConsoleCommand returns the command of the embedded cluster's console.
func newConsoleCommand() *cobra.Command {
	cmd := consolecmd.NewLocal()
	cmd.SetContext(genericapiserver.SetupSignalContext())
	return cmd
}
