// Package delete implements "t9k delete", which deletes jobs with all their pods.
package delete

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
)

// Command returns the command "t9k delete".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "delete JOB...",
		Short: "Delete jobs with all their pods",
		Long: `Delete jobs with all objects that belong to them, and wait until they are deleted. Ctrl-C stops the wait, not the deletion.

With -f, the command deletes the jobs of a manifest. It keeps the other objects of the manifest, such as ConfigMaps and
volumes, which other jobs may use.`,
		Example: p.Example("t9k delete mnist", "t9k delete -f job.yaml", "t9k delete -l sweep=lr",
			"t9k delete mnist resnet --wait=false"),
		ValidArgsFunction: p.CompleteJobs(-1),
	}
	kit.AddChoiceFlags(cmd, &o.choice, "Every job of the namespace")
	byName := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(o.files) == 0:
			return byName(cmd, args)
		case len(args) > 0 || o.choice != kit.Choice{}:
			return errors.New("-f names the jobs: leave out the names, -l and --all")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return remove(cmd.Context(), p, &o, args) }
	kit.AddFileFlag(cmd, &o.files)
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until the jobs and their pods are deleted")
	kit.AddOutputFlag(cmd, &o.output, kit.Name)
	return cmd
}

type options struct {
	choice kit.Choice
	files  []string
	wait   bool
	output kit.Format
}

func remove(ctx context.Context, p *kit.Program, o *options, addresses []string) error {
	choose := func() (*kit.Cluster, []*kit.Job, error) { return p.Choose(ctx, &o.choice, addresses) }
	if len(o.files) > 0 {
		choose = func() (*kit.Cluster, []*kit.Job, error) { return inFiles(ctx, p, o.files) }
	}
	c, jobs, err := choose()
	if err != nil {
		return err
	}
	var errs []error
	var accepted []*kit.Job
	for _, j := range jobs {
		if err := c.Steer().Delete(ctx, j); err != nil {
			errs = append(errs, err)
			continue
		}
		accepted = append(accepted, j)
	}
	// If the deletion of one job is refused, the results of the others are still printed.
	for _, j := range accepted {
		if err := o.conclude(ctx, p, c, j); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// conclude waits for a deletion if the options ask for it, and prints the result.
func (o *options) conclude(ctx context.Context, p *kit.Program, c *kit.Cluster, j *kit.Job) error {
	if o.wait {
		if err := c.AwaitGone(ctx, p, j); err != nil {
			return err
		}
	}
	switch {
	case o.output == kit.Name:
		p.PrintNames(j)
	case o.wait:
		fmt.Fprintln(p.Out, j.Ref(), "is deleted")
	default:
		fmt.Fprintln(p.Out, j.Ref(), "is being deleted")
	}
	return nil
}
