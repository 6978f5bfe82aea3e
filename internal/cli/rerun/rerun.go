// Package rerun implements "t9k rerun", which runs a job again: it creates a copy of the job under another name.
package rerun

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/progress"
	"tensorstack.dev/batch/internal/observed"
)

type options struct {
	name   string
	detach bool
	logs   progress.Logs
	output kit.Format
}

// Command returns the command "t9k rerun".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "rerun JOB",
		Short: "Run a job again, as a copy under another name",
		Long: `Create a job with the spec, labels and annotations of another job, and watch it until it finishes, as "run" does. The
other job may have finished or still run; it does not change. A copy of a job that is paused or in debug mode runs at once.

The copy of mnist is called mnist-2, or has the next free number.`,
		Example:           p.Example("t9k rerun mnist", "t9k rerun mnist --name mnist-large --detach"),
		Args:              kit.NeedJob,
		ValidArgsFunction: p.CompleteJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output != "" && !o.detach {
				return errors.New("-o prints the new job and needs --detach")
			}
			return rerun(cmd.Context(), p, &o, args[0])
		},
	}
	cmd.Flags().StringVar(&o.name, "name", "", "Name of the new job")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "Return when the job is created")
	progress.AddLogsFlag(cmd, &o.logs)
	kit.AddOutputFlag(cmd, &o.output, kit.Name, kit.JSON, kit.YAML)
	return cmd
}

func rerun(ctx context.Context, p *kit.Program, o *options, address string) error {
	c, j, err := p.Find(ctx, address)
	if err != nil {
		return err
	}
	again, err := create(ctx, c, j, o.name)
	if err != nil {
		return err
	}
	switch o.output {
	case kit.Name:
		p.PrintNames(again)
		return nil
	case kit.JSON, kit.YAML:
		return kit.PrintObject(p.Out, o.output, again.Raw)
	}
	fmt.Fprintf(p.Out, "%s created as a copy of %s\n", again.Ref(), j.Ref())
	if o.detach {
		return nil
	}
	return progress.Watch(ctx, p, c, []*kit.Job{again}, progress.Options{Logs: o.logs})
}

// maxCopies is the largest number that is tried in the name of a copy.
const maxCopies = 1000

// create creates a copy of a job. If name is empty, the copy gets the first free numbered name.
func create(ctx context.Context, c *kit.Cluster, j *kit.Job, name string) (*kit.Job, error) {
	put := func(name string) (*kit.Job, error) {
		raw, err := c.Steer().Copy(ctx, j, name)
		if err != nil {
			return nil, err
		}
		return observed.New(j.Kind, raw)
	}
	if name != "" {
		return put(name)
	}
	for n := 2; n <= maxCopies; n++ {
		again, err := put(fmt.Sprintf("%s-%d", j.GetName(), n))
		switch {
		case apierrors.IsInvalid(err):
			return nil, fmt.Errorf("%w\nIf the name is too long, choose a shorter one with --name", err)
		case !apierrors.IsAlreadyExists(err):
			return again, err
		}
	}
	return nil, fmt.Errorf("the names %s-2 to %s-%d are taken: choose one with --name", j.GetName(), j.GetName(), maxCopies)
}
