package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"tensorstack.dev/batch/internal/cli/follow"
	"tensorstack.dev/batch/internal/kinds"
)

func (a *app) deleteCommand() *cobra.Command {
	var wait bool
	var o output
	cmd := &cobra.Command{
		Use:   "delete JOB...",
		Short: "Delete jobs with all their pods",
		Long: `Delete jobs with all that belongs to them, and wait until nothing of them is left. Interrupting the wait does not stop
the deletion.`,
		Example:           a.example("t9k delete mnist", "t9k delete mnist resnet --wait=false"),
		Args:              needJobs,
		ValidArgsFunction: a.completeJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.delete(cmd.Context(), args, wait, o)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "Wait until the jobs and their pods are gone")
	addOutputFlag(cmd, &o, outputName)
	return cmd
}

func (a *app) delete(ctx context.Context, addresses []string, wait bool, o output) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	jobs, err := c.findAll(ctx, addresses)
	if err != nil {
		return err
	}
	var failed []error
	for _, j := range jobs {
		// In the foreground the job outlives its pods, so that its end is the end of all.
		policy, uid := metav1.DeletePropagationForeground, j.GetUID()
		err := c.jobs(j.kind, j.GetNamespace()).Delete(ctx, j.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("deleting %s: %w", j.ref(), err))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	for _, j := range jobs {
		if wait {
			if err := a.awaitGone(ctx, c, j); err != nil {
				return err
			}
		}
		switch {
		case o == outputName:
			fmt.Fprintln(a.Out, j.ref())
		case wait:
			fmt.Fprintln(a.Out, j.ref(), "is deleted")
		default:
			fmt.Fprintln(a.Out, j.ref(), "is being deleted")
		}
	}
	return nil
}

// awaitGone waits until a job is gone, or another has taken its name.
func (a *app) awaitGone(ctx context.Context, c *cluster, j *job) error {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	done := false
	err := follow.Run(ctx, c.jobSource(j.kind, j.GetNamespace(), j.GetName()), func(change follow.Change) {
		switch change.Type {
		case follow.Listed:
			done = !has(change.Objects, j.GetUID())
		case follow.Set:
			done = !has(change.Objects, j.GetUID())
		case follow.Gone:
			done = true
		case follow.Lost:
			fmt.Fprintf(a.ErrOut, "The API server does not answer; trying again: %s\n", cause(change.Err))
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

// jobSource follows one job.
func (c *cluster) jobSource(kind *kinds.Kind, namespace, name string) follow.Source {
	client := c.jobs(kind, namespace)
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	return follow.Source{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return client.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return client.Watch(ctx, o)
		},
	}
}
