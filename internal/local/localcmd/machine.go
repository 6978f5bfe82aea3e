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
		Short:  "Hold a cluster together (started by up)",
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
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false, "end, and delete the directory, when the standard input ends")
	return cmd
}

// runMachine runs the cluster of a directory until a signal or, if it is ephemeral, until the standard input ends.
func runMachine(ctx context.Context, d local.Dir, ephemeral bool) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	lock, err := local.Enter(ctx, d)
	if err != nil {
		return err
	}
	defer lock.Close()
	if ephemeral {
		// Whoever reads the output may be gone, too. Without a channel, a log line would then end this process before
		// it has deleted the directory. Ignoring the signal instead would be inherited by all components.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		ctx = untilInputEnds(ctx, os.Stdin)
	}
	return (&local.Machine{Dir: d, Ephemeral: ephemeral}).Run(ctx)
}

// untilInputEnds returns a context that ends at the end of input. That happens at the latest when the process that
// holds the other end of a pipe ends.
func untilInputEnds(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	// Nothing waits for the goroutine, because nothing can end its read of a standard input that stays open. It ends
	// with this process.
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input) // an error ends the input, too
	}()
	return ctx
}
