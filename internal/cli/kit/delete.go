package kit

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/cli/watch"
)

// Delete deletes a job with everything that belongs to it, and does not wait for it. A job that is gone already is no
// error, and another job of the same name stays.
func (c *Cluster) Delete(ctx context.Context, j *Job) error {
	// Foreground deletion removes the job last, so waiting for the job is enough.
	policy, uid := metav1.DeletePropagationForeground, j.GetUID()
	err := c.Jobs(j.Kind, j.GetNamespace()).Delete(ctx, j.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", j.Ref(), err)
	}
	return nil
}

// AwaitGone waits until a job is gone or another job has its name.
func (c *Cluster) AwaitGone(ctx context.Context, p *Program, j *Job) error {
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
			fmt.Fprintf(p.ErrOut, "The API server does not answer; trying again: %s\n", Cause(change.Err))
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
