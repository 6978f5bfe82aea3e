// Package delete is "t9k delete", which deletes jobs with all their pods.
package delete

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/watch"
)

// Command returns the verb.
func Command(p *kit.Program) *cobra.Command {
	var wait bool
	var o kit.Format
	cmd := &cobra.Command{
		Use:               "delete JOB...",
		Short:             "Delete jobs with all their pods",
		Long:              `Delete jobs and everything that belongs to them, and wait until it is gone. Ctrl-C ends the wait and not the deletion.`,
		Example:           p.Example("t9k delete mnist", "t9k delete mnist resnet --wait=false"),
		Args:              kit.NeedJobs,
		ValidArgsFunction: p.CompleteJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return remove(cmd.Context(), p, args, wait, o)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "Wait until the jobs and their pods are gone")
	kit.AddOutputFlag(cmd, &o, kit.Name)
	return cmd
}

func remove(ctx context.Context, p *kit.Program, addresses []string, wait bool, o kit.Format) error {
	c, jobs, err := p.FindAll(ctx, addresses)
	if err != nil {
		return err
	}
	var failed []error
	for _, j := range jobs {
		// Foreground deletion removes the job last, so waiting for the job is enough.
		if err := c.Steer().Delete(ctx, j); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	for _, j := range jobs {
		if wait {
			if err := awaitGone(ctx, p, c, j); err != nil {
				return err
			}
		}
		switch {
		case o == kit.Name:
			p.PrintNames(j)
		case wait:
			fmt.Fprintln(p.Out, j.Ref(), "is deleted")
		default:
			fmt.Fprintln(p.Out, j.Ref(), "is being deleted")
		}
	}
	return nil
}

// awaitGone waits until a job is gone or another job has its name.
func awaitGone(ctx context.Context, p *kit.Program, c *kit.Cluster, j *kit.Job) error {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	done := false
	err := watch.Run(ctx, c.JobSource(j.Kind, j.GetNamespace(), j.GetName()), func(change watch.Change) {
		switch change.Type {
		case watch.Listed, watch.Set:
			done = !has(change.Objects, j.GetUID())
		case watch.Gone:
			done = true
		case watch.Lost:
			fmt.Fprintf(p.ErrOut, "The API server does not answer; trying again: %s\n", kit.Cause(change.Err))
		}
		if done {
			gone()
		}
	})
	if done {
		return nil
	}
	return err
}

func has(objects []runtime.Object, uid types.UID) bool {
	for _, o := range objects {
		if m, ok := o.(metav1.Object); ok && m.GetUID() == uid {
			return true
		}
	}
	return false
}
