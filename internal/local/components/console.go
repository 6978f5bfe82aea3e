package components

import (
	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"tensorstack.dev/batch/internal/console/consolecmd"
)

// newConsoleCommand returns the command of the embedded cluster's console, with a context that ends at SIGTERM or
// SIGINT.
func newConsoleCommand() *cobra.Command {
	cmd := consolecmd.NewLocal()
	cmd.SetContext(genericapiserver.SetupSignalContext())
	return cmd
}
