package logs

import (
	"context"
	"fmt"
	"sync"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/watch"
)

// topic is the subject of a change: the job or its pods.
type topic int

const (
	ofJob topic = iota
	ofPods
)

type update = watch.Update[topic]

// watch prints the output of the replicas until the job has finished or is deleted, and all output is printed.
func (l *printer) watch(ctx context.Context) error {
	var sources sync.WaitGroup
	defer sources.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	incoming := make(chan update)
	t := &kit.WatchedJob{Job: l.Job}
	job := l.Cluster.JobSource(l.Job.Kind, l.Job.GetNamespace(), l.Job.GetName())
	sources.Go(func() { watch.Send(watching, incoming, ofJob, job) })
	pods := l.Cluster.PodSource(l.Job, l.Selection.Labels(l.Job))
	sources.Go(func() { watch.Send(watching, incoming, ofPods, pods) })
	earlier := l.history(ctx)
	for _, r := range l.Selection.Replicas() {
		l.reportEarlier(r, earlier)
	}
	listed := false
	for !t.Over() || !listed {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-incoming:
			if n.Err != nil {
				return fmt.Errorf("watching %s: %w", l.Job.Ref(), n.Err)
			}
			listed = listed || n.About == ofPods && n.Change.Type == watch.Listed
			if err := l.take(ctx, t, n); err != nil {
				return err
			}
		}
	}
	if err := l.Finish(ctx, t.Deleted); err != nil {
		return err
	}
	if t.Deleted {
		fmt.Fprintf(l.ErrOut, "%s was deleted.\n", t.Ref())
	}
	return ctx.Err()
}

func (l *printer) take(ctx context.Context, t *kit.WatchedJob, n update) error {
	switch {
	case n.About == ofPods && n.Change.Type == watch.Lost:
		fmt.Fprintf(l.ErrOut, "The API server does not answer; trying again: %s\n", kit.Cause(n.Change.Err))
	case n.About == ofPods:
		l.TakePods(ctx, n.Change)
	case n.Change.Type == watch.Lost, n.Change.Type == watch.Back:
	default:
		return t.Take(n.Change)
	}
	return nil
}
