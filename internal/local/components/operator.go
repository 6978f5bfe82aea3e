package components

import (
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"tensorstack.dev/batch/internal/operator"
)

func newOperatorCommand() *cobra.Command {
	cmd := operator.NewCommand()
	cmd.SetContext(genericapiserver.SetupSignalContext())
	// Where containers are processes of this machine, its image has nothing: the operator's program is this one.
	if exe, err := os.Executable(); err == nil {
		_ = cmd.Flags().Set("helper-command", exe+",operator") // any text makes a list
	}
	// What they run is the machine's too, and may be readable for its user alone.
	_ = cmd.Flags().Set("tensorboard-user", "0") // any number is taken
	return cmd
}
