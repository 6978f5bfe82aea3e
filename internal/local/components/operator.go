package components

import (
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"tensorstack.dev/batch/internal/operator"
)

// newOperatorCommand returns the operator's command with the defaults of the embedded cluster.
func newOperatorCommand() *cobra.Command {
	cmd := operator.NewCommand()
	cmd.SetContext(genericapiserver.SetupSignalContext())
	// Containers have no image here, so the TensorBoards' helper is this program instead of the operator's image.
	if exe, err := os.Executable(); err == nil {
		_ = cmd.Flags().Set("helper-command", exe+",operator") // every text is a valid list
	}
	// TensorBoards run programs of the machine that may be readable only by the user who runs the cluster.
	_ = cmd.Flags().Set("tensorboard-user", "0") // every number is valid
	return cmd
}
