package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"tensorstack.dev/batch/internal/cli/follow"
	"tensorstack.dev/batch/internal/cli/podlog"
	"tensorstack.dev/batch/internal/engine"
)

// follower follows the logs of a job's pods, whichever they are.
type logFollower struct {
	*logPrinter
	// pods holds the log of each pod that has one, by UID.
	pods map[types.UID]*followedPod
	// streams counts the logs that are being read.
	streams sync.WaitGroup
}

type followedPod struct {
	*logPod
	// ended is closed when the container has ended or the pod is gone.
	ended  chan struct{}
	closed bool
	// cancel ends the reading at once.
	cancel context.CancelFunc
	// exit is how the container ended, once it has.
	exit *corev1.ContainerStateTerminated
}

// follow prints what the replicas write until the job has ended and everything is printed.
func (l *logPrinter) follow(ctx context.Context) error {
	f := &logFollower{logPrinter: l, pods: map[types.UID]*followedPod{}}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	incoming := make(chan news)
	t := &track{job: l.job}
	go watchInto(watching, incoming, news{track: t}, l.cluster.jobSource(l.job.kind, l.job.GetNamespace(), l.job.GetName()))
	go watchInto(watching, incoming, news{track: t, pods: true}, l.cluster.podSource(l.job))
	earlier := l.history(ctx)
	for _, r := range l.selection.replicas() {
		l.tellEarlier(r, earlier)
	}
	listed := false
	for !t.over() || !listed {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-incoming:
			if n.err != nil {
				return fmt.Errorf("following %s: %w", l.job.ref(), n.err)
			}
			listed = listed || n.pods && n.change.Type == follow.Listed
			if err := f.take(ctx, n); err != nil {
				return err
			}
		}
	}
	return f.finish(ctx, t)
}

func (c *cluster) podSource(j *job) follow.Source {
	pods := c.core.Pods(j.GetNamespace())
	return follow.Source{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = j.selector()
			return pods.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = j.selector()
			return pods.Watch(ctx, o)
		},
	}
}

func (f *logFollower) take(ctx context.Context, n news) error {
	switch {
	case n.change.Type == follow.Lost:
		if n.pods {
			fmt.Fprintf(f.ErrOut, "The API server does not answer; trying again: %s\n", cause(n.change.Err))
		}
	case n.change.Type == follow.Back:
	case n.pods:
		f.takePods(ctx, n.change)
	default:
		return n.takeStatus(n.change)
	}
	return nil
}

func (f *logFollower) takePods(ctx context.Context, change follow.Change) {
	present := map[types.UID]bool{}
	for _, o := range change.Objects {
		if pod, ok := o.(*corev1.Pod); ok {
			present[pod.UID] = true
			f.takePod(ctx, pod, change.Type == follow.Gone)
		}
	}
	if change.Type != follow.Listed {
		return
	}
	for uid, p := range f.pods {
		if !present[uid] {
			p.end()
		}
	}
}

// takePod starts to read the log of a pod as soon as there is one, and notes its end.
func (f *logFollower) takePod(ctx context.Context, pod *corev1.Pod, gone bool) {
	p := f.pods[pod.UID]
	if p == nil {
		selected := f.selection.pod(pod)
		if selected == nil || gone {
			return
		}
		if state := containerState(pod, selected.container); state.Running == nil && state.Terminated == nil {
			return
		}
		p = &followedPod{logPod: selected, ended: make(chan struct{})}
		f.pods[pod.UID] = p
		f.start(ctx, p)
	}
	if t := containerState(pod, p.container).Terminated; t != nil {
		if !p.closed { // afterwards the reading goroutine looks at it
			p.exit = t
		}
		p.end()
	}
	if gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		p.end()
	}
}

func (p *followedPod) end() {
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
}

// start reads a log in the background.
func (f *logFollower) start(ctx context.Context, p *followedPod) {
	if p.attempt > 0 {
		f.lines.remark(p.replica, fmt.Sprintf("attempt %d", p.attempt+1))
	}
	ctx, p.cancel = context.WithCancel(ctx)
	reader := &podlog.Reader{Open: f.open(p.logPod), Options: f.request, Emit: f.lines.emitter(p.replica)}
	f.streams.Go(func() {
		if err := reader.Follow(ctx, p.ended); err != nil && !errors.Is(err, context.Canceled) {
			f.complain(p.logPod, err)
			return
		}
		if ctx.Err() != nil || p.exit == nil || p.exit.ExitCode == 0 {
			return
		}
		how := fmt.Sprintf("ended with exit code %d", p.exit.ExitCode)
		if why := engine.StartFailure(p.exit); why != "" {
			how = "ended: its command cannot be started: " + why
		}
		f.lines.remark(p.replica, fmt.Sprintf("attempt %d %s", p.attempt+1, how))
	})
}

// finish reads what is left when the job is over. Pods that outlive it are let go.
func (f *logFollower) finish(ctx context.Context, t *track) error {
	if !t.deleted {
		list, err := f.podsNow(ctx)
		if err != nil {
			return err
		}
		f.takePods(ctx, follow.Change{Type: follow.Listed, Objects: list})
	}
	for _, p := range f.pods {
		if !p.closed {
			p.cancel()
		}
	}
	f.streams.Wait()
	if t.deleted {
		fmt.Fprintf(f.ErrOut, "%s was deleted.\n", t.ref())
	}
	return ctx.Err()
}

// podsNow asks once more for the pods: the job's end may be known before that of its pods.
func (f *logFollower) podsNow(ctx context.Context) ([]runtime.Object, error) {
	list, err := f.cluster.core.Pods(f.job.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: f.job.selector()})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	objects := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}

// containerState is the state of a container or init container; a zero one where the pod tells none.
func containerState(pod *corev1.Pod, name string) corev1.ContainerState {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return statuses[i].State
			}
		}
	}
	return corev1.ContainerState{}
}
