package kit

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/cli/watch"
)

// AwaitGone waits until a job is deleted or another job has its name. It reports outages of the API server on standard
// error and waits for their end.
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
