package localcmd

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/local"
)

// newMachine returns the hidden command "machine", which `up` runs in the background.
func newMachine() *cobra.Command {
	var path string
	var ephemeral bool
	cmd := &cobra.Command{
		Use:    "machine",
		Short:  "Run the machine process of a cluster (started by up)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := local.CheckDir(path)
			if err != nil {
				return err
			}
			if err = runMachine(cmd.Context(), d, ephemeral); err != nil && !ephemeral {
				err = errors.Join(err, d.RecordExit(err))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&path, "dir", "", "the cluster's directory")
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "stop and delete the directory at the end of the standard input")
	return cmd
}

// runMachine runs the cluster of a directory until this process gets a signal or a client stops the cluster. An
// ephemeral cluster also stops at the end of the standard input.
func runMachine(ctx context.Context, d local.Dir, ephemeral bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	lock, err := local.Enter(ctx, d)
	if err != nil {
		return err
	}
	defer lock.Close()
	if ephemeral {
		// The process that reads the output may also have exited. A log line then causes SIGPIPE. Without a handler,
		// the signal would kill this process before it has deleted the directory. The signal must not be ignored
		// either, because all components would inherit this setting.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		ctx = untilInputEnds(ctx, os.Stdin)
	}
	return (&local.Machine{Dir: d, Ephemeral: ephemeral}).Run(ctx)
}

// untilInputEnds returns a context that ends at the end of input. If input is a pipe, this happens at the latest when
// the process at its other end exits.
func untilInputEnds(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	// Nothing waits for the goroutine, because its read of a standard input that stays open cannot be interrupted. It
	// ends with this process.
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input) // an error also ends the input
	}()
	return ctx
}
