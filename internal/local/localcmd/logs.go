package localcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/local"
)

// newLogs returns the command "logs".
func newLogs(c *cluster) *cobra.Command {
	var follow bool
	var tail int
	components := local.LogNames()
	cmd := &cobra.Command{
		Use:       "logs COMPONENT",
		Short:     "Print the log of a component",
		Long:      "Print the log of a component: " + strings.Join(components, ", ") + ".",
		ValidArgs: components,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(components, args[0]) {
				return nil
			}
			return fmt.Errorf("name one of %s", strings.Join(components, ", "))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			d, err := c.existing()
			if err != nil {
				return err
			}
			f, err := os.Open(d.LogFile(args[0]))
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%s has not run in cluster %s", args[0], d.Name())
			}
			if err != nil {
				return err
			}
			defer f.Close()
			return copyLog(ctx, cmd.OutOrStdout(), f, tail, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines until interrupted")
	cmd.Flags().IntVar(&tail, "tail", -1, "number of last lines to begin with; -1 prints all")
	return cmd
}

// copyLog prints the last tail lines of f, or all lines if tail is negative. If follow is set, it continues with
// appended lines until ctx ends.
func copyLog(ctx context.Context, out io.Writer, f *os.File, tail int, follow bool) error {
	if err := seekLines(f, tail); err != nil {
		return err
	}
	for {
		if _, err := io.Copy(out, f); err != nil {
			return err
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// seekLines moves f to the start of its last n lines. It does not move f if n is negative.
func seekLines(f *os.File, n int) error {
	if n < 0 {
		return nil
	}
	const block = 64 << 10
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	breaks := 0
	buffer := make([]byte, block)
	for at := end; at > 0; {
		size := min(block, at)
		at -= size
		if _, err := f.ReadAt(buffer[:size], at); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			if buffer[i] != '\n' || at+i == end-1 {
				continue
			}
			if breaks++; breaks == n {
				_, err := f.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	if n == 0 {
		return nil
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}
