package local

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// NewCommand makes the command line of t9k-local.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "t9k-local",
		Short:         "Run a Kubernetes cluster on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newMachineCommand())
	return root
}

// newMachineCommand makes the command that `up` starts in the background.
func newMachineCommand() *cobra.Command {
	var dir string
	var ephemeral bool
	cmd := &cobra.Command{
		Use:    "machine",
		Short:  "Hold a cluster together (started by up)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if ephemeral {
				ctx = untilInputEnds(ctx, os.Stdin)
			}
			d, err := checkDir(dir)
			if err != nil {
				return err
			}
			c, err := d.Load()
			if err != nil {
				return err
			}
			if c.hasNode() {
				if err := goPrivate(); err != nil {
					return err
				}
			}
			return (&Machine{Dir: d, Ephemeral: ephemeral}).Run(ctx)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the cluster's directory")
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "end, and delete the directory, when the standard input ends")
	return cmd
}

// untilInputEnds returns a context that ends with the input: when whoever holds its other end is gone.
func untilInputEnds(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input) // any error is an end too
	}()
	return ctx
}
