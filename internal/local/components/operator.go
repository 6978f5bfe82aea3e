package components

import (
	"os"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/operator"
)

// newOperatorCommand returns the operator's command with the defaults of the embedded cluster.
func newOperatorCommand() *cobra.Command {
	base := &configv1alpha1.OperatorConfiguration{}
	// Containers have no image here, so the TensorBoards' helper is this program instead of the operator's image.
	if exe, err := os.Executable(); err == nil {
		base.TensorBoards.HelperCommand = []string{exe, "operator"}
	}
	// TensorBoards run as root (user 0), because only the user who runs the cluster may be able to read their programs.
	base.TensorBoards.User = new(int64)
	cmd := operator.NewCommand(base)
	cmd.SetContext(genericapiserver.SetupSignalContext())
	return cmd
}
