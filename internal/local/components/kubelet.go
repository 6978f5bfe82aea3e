package components

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/kubelet"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/local/cri"
)

// newKubeletCommand returns the kubelet's command. The process runtime runs in the same process if the cluster uses it.
func newKubeletCommand() *cobra.Command {
	cmd := kubeletapp.NewKubeletCommand(context.Background())
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := prepareNode(cmd.Context()); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// prepareNode redirects the container log links into the cluster's directory and starts the process runtime if the
// cluster uses it.
func prepareNode(ctx context.Context) error {
	d := local.Dir(os.Getenv(local.DirVariable))
	c, err := d.Load()
	if err != nil {
		return err
	}
	kubelet.ContainerLogsDir = d.ContainerLogs()
	if c.Runtime != local.RuntimeProcess {
		return nil
	}
	config := local.RuntimeConfig(d, c)
	config.Log = klog.Background().WithName("cri")
	if err := cri.Serve(ctx, config); err != nil {
		return fmt.Errorf("starting the process runtime: %w", err)
	}
	return nil
}
