package logs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/watch"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/podlog"
)

// topic is the subject of a change: the job or its pods.
type topic int

const (
	ofJob topic = iota
	ofPods
)

type news = watch.News[topic]

// streamer prints the logs of a job's pods as they are written, including the logs of later pods.
type streamer struct {
	*printer
	// pods holds the log of each pod that has one, by UID.
	pods map[types.UID]*stream
	// streams counts the goroutines that read logs.
	streams sync.WaitGroup
}

// stream is the log of a pod that is being read.
type stream struct {
	*pod
	// ended is closed when the container has ended or the pod is gone.
	ended  chan struct{}
	closed bool
	// cancel stops the reading at once.
	cancel context.CancelFunc
	// exit is the end of the container; nil before.
	exit *corev1.ContainerStateTerminated
}

// watch prints the output of the replicas until the job has ended and everything is printed.
func (l *printer) watch(ctx context.Context) error {
	f := &streamer{printer: l, pods: map[types.UID]*stream{}}
	var sources sync.WaitGroup
	defer sources.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	incoming := make(chan news)
	t := &kit.WatchedJob{Job: l.job}
	job := l.cluster.JobSource(l.job.Kind, l.job.GetNamespace(), l.job.GetName())
	sources.Go(func() { watch.Send(watching, incoming, ofJob, job) })
	sources.Go(func() { watch.Send(watching, incoming, ofPods, l.cluster.PodSource(l.job)) })
	earlier := l.history(ctx)
	for _, r := range l.selection.Replicas() {
		l.reportEarlier(r, earlier)
	}
	listed := false
	for !t.Over() || !listed {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-incoming:
			if n.Err != nil {
				return fmt.Errorf("following %s: %w", l.job.Ref(), n.Err)
			}
			listed = listed || n.About == ofPods && n.Change.Type == watch.Listed
			if err := f.take(ctx, t, n); err != nil {
				return err
			}
		}
	}
	return f.finish(ctx, t)
}

func (f *streamer) take(ctx context.Context, t *kit.WatchedJob, n news) error {
	switch {
	case n.Change.Type == watch.Lost:
		if n.About == ofPods {
			fmt.Fprintf(f.ErrOut, "The API server does not answer; trying again: %s\n", kit.Cause(n.Change.Err))
		}
	case n.Change.Type == watch.Back:
	case n.About == ofPods:
		f.takePods(ctx, n.Change)
	default:
		return t.Take(n.Change)
	}
	return nil
}

func (f *streamer) takePods(ctx context.Context, change watch.Change) {
	present := map[types.UID]bool{}
	for _, o := range change.Objects {
		if pod, ok := o.(*corev1.Pod); ok {
			present[pod.UID] = true
			f.takePod(ctx, pod, change.Type == watch.Gone)
		}
	}
	if change.Type != watch.Listed {
		return
	}
	for uid, p := range f.pods {
		if !present[uid] {
			p.end()
		}
	}
}

// takePod starts reading the log of a pod once it exists, and records the pod's end.
func (f *streamer) takePod(ctx context.Context, pod *corev1.Pod, gone bool) {
	p := f.pods[pod.UID]
	if p == nil {
		selected := f.podOf(pod)
		if selected == nil || gone {
			return
		}
		if state := kit.ContainerState(pod, selected.container); state.Running == nil && state.Terminated == nil {
			return
		}
		p = &stream{pod: selected, ended: make(chan struct{})}
		f.pods[pod.UID] = p
		f.start(ctx, p)
	}
	if t := kit.ContainerState(pod, p.container).Terminated; t != nil {
		if !p.closed { // once closed, only the reading goroutine accesses exit
			p.exit = t
		}
		p.end()
	}
	if gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		p.end()
	}
}

func (p *stream) end() {
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
}

// start reads a log in the background.
func (f *streamer) start(ctx context.Context, p *stream) {
	if p.attempt > 0 {
		f.lines.remark(p.Replica, fmt.Sprintf("attempt %d", p.attempt+1))
	}
	ctx, p.cancel = context.WithCancel(ctx)
	reader := &podlog.Reader{Open: f.open(p.pod), Options: f.request, Emit: f.lines.emitter(p.Replica)}
	f.streams.Go(func() {
		if err := reader.Follow(ctx, p.ended); err != nil && !errors.Is(err, context.Canceled) {
			f.complain(p.pod, err)
			return
		}
		if ctx.Err() != nil || p.exit == nil || p.exit.ExitCode == 0 {
			return
		}
		how := fmt.Sprintf("ended with exit code %d", p.exit.ExitCode)
		if why := engine.StartFailure(p.exit); why != "" {
			how = "ended: its command cannot be started: " + why
		}
		f.lines.remark(p.Replica, fmt.Sprintf("attempt %d %s", p.attempt+1, how))
	})
}

// finish reads the rest of the logs after the end of the job. It does not wait for pods that outlive the job.
func (f *streamer) finish(ctx context.Context, t *kit.WatchedJob) error {
	if !t.Deleted {
		list, err := f.podsNow(ctx)
		if err != nil {
			return err
		}
		f.takePods(ctx, watch.Change{Type: watch.Listed, Objects: list})
	}
	for _, p := range f.pods {
		if !p.closed {
			p.cancel()
		}
	}
	f.streams.Wait()
	if t.Deleted {
		fmt.Fprintf(f.ErrOut, "%s was deleted.\n", t.Ref())
	}
	return ctx.Err()
}

// podsNow lists the pods again, because the job's end may be observed before the ends of its pods.
func (f *streamer) podsNow(ctx context.Context) ([]runtime.Object, error) {
	list, err := f.cluster.Core.Pods(f.job.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: f.job.Selector()})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	objects := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}
