// Package tensorboard implements "t9k tensorboard", which forwards a local port to a TensorBoard.
package tensorboard

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/tensorboard/board"
	"tensorstack.dev/batch/internal/tensorboard/forward"
)

type options struct {
	port         int
	open, resume bool
	timeout      time.Duration
}

// Command returns the command "t9k tensorboard".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "tensorboard JOB|NAME",
		Short: "Forward a port to a TensorBoard",
		Long: `Forward a port of this machine to the TensorBoard of a job, or to a TensorBoard without a job, and print the address.
The TensorBoard of a job has the name of the job. Ctrl-C stops the forwarding.

The operator suspends a TensorBoard that has had no request for a long time. --resume starts it again.`,
		Example:           p.Example("t9k tensorboard mnist", "t9k tensorboard mnist --open", "t9k tensorboard mnist --resume"),
		Args:              kit.NeedJob,
		ValidArgsFunction: complete(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), p, &o, args[0]) },
	}
	f := cmd.Flags()
	f.IntVar(&o.port, "port", 0, "Port of this machine; 0 selects a free one")
	f.BoolVar(&o.open, "open", false, "Open the address in a browser")
	f.BoolVar(&o.resume, "resume", false, "Start it again if it is suspended")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "How long to wait until it answers")
	return cmd
}

func show(ctx context.Context, p *kit.Program, o *options, address string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	boards := clientOf(c)
	tb, err := find(ctx, c, boards, address)
	if err != nil {
		return err
	}
	if board.Suspended(tb) {
		if !o.resume {
			return fmt.Errorf("tensorboard/%s is suspended: \"t9k tensorboard %s --resume\" starts it again", tb.Name, address)
		}
		if err := boards.Resume(ctx, tb); err != nil {
			return err
		}
		fmt.Fprintf(p.ErrOut, "tensorboard/%s is being resumed.\n", tb.Name)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("tensorboard/%s does not answer after %s", tb.Name, o.timeout))
	defer cancel()
	tb, err = boards.Await(waiting, tb.Namespace, tb.Name, func(ready tensorboard.Condition) error {
		fmt.Fprintf(p.ErrOut, "tensorboard/%s: %s\n", tb.Name, ready.Message)
		return nil
	})
	if err != nil {
		return err
	}
	return serve(ctx, p, boards, o, tb)
}

// serve forwards a local port to a TensorBoard until ctx is done.
func serve(ctx context.Context, p *kit.Program, boards *forward.Client, o *options, tb *tensorboard.TensorBoard) error {
	f, err := boards.Start(ctx, tb, o.port)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintln(p.Out, f.URL)
	fmt.Fprintln(p.ErrOut, "Ctrl-C closes the connection; the TensorBoard keeps running.")
	if o.open {
		if err := kit.Browse(ctx, f.URL); err != nil {
			fmt.Fprintf(p.ErrOut, "No browser could be opened: %v\n", err)
		}
	}
	<-ctx.Done()
	return nil
}

func clientOf(c *kit.Cluster) *forward.Client {
	return &forward.Client{Config: c.Config, Objects: c.Objects, Core: c.Core, Manager: kit.FieldManager}
}

// complete returns a completion of the names of TensorBoards. The TensorBoard of a job has the job's name.
func complete(p *kit.Program) kit.Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.Complete(cmd.Context(), func(ctx context.Context, c *kit.Cluster) ([]string, error) {
			list, err := clientOf(c).In(c.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var names []string
			for i := range list.Items {
				phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase")
				names = append(names, cobra.CompletionWithDesc(list.Items[i].GetName(), phase))
			}
			return names, nil
		})
	}
}

// find returns the TensorBoard with a name, or the TensorBoard of a job. If the job has none, the error contains the
// reason from the job's status.
func find(ctx context.Context, c *kit.Cluster, boards *forward.Client, address string) (*tensorboard.TensorBoard, error) {
	kind, name, err := kit.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	tb, err := boards.Get(ctx, c.Namespace, name)
	switch {
	case kit.NotServed(err):
		return nil, kit.ErrNotInstalled
	case err == nil && kind == nil:
		return tb, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting tensorboard/%s: %w", name, err)
	}
	j, err := c.Find(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("no TensorBoard %q in namespace %q: %w", name, c.Namespace, err)
	}
	return boards.Of(ctx, j)
}
