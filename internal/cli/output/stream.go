package output

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/cli/watch"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/podlog"
)

// Streamer reads the logs of a job's pods as they are written, including the logs of later pods. Its owner passes the
// changes of the pods to TakePods and calls Finish or Wait at the end.
type Streamer struct {
	Cluster   *kit.Cluster
	Job       *kit.Job
	Selection *selection.Selection
	// Request holds the options of the requests for logs.
	Request corev1.PodLogOptions
	// Emit receives every line. The goroutines that read logs call it concurrently.
	Emit func(Line)

	// pods holds the log of each pod that has one, by UID.
	pods map[types.UID]*stream
	// read holds, by replica index, the channel that is closed when the log of the replica's latest pod has been read.
	read map[int]chan struct{}
	// streams counts the goroutines that read logs.
	streams sync.WaitGroup
}

// stream is the log of a pod that is being read.
type stream struct {
	*Pod
	// ended is closed when the container or the pod has terminated, or when the pod is deleted.
	ended chan struct{}
	// closed is true once ended is closed.
	closed bool
	// cancel stops the reading immediately.
	cancel context.CancelFunc
	// exit is the final state of the container. It is nil until the container has terminated, and stays nil if the end
	// of the pod is seen without this state.
	exit *corev1.ContainerStateTerminated
	// init is true if the container is an init container that failed.
	init bool
}

// Remark emits a line about the output of a replica.
func (f *Streamer) Remark(r selection.Replica, text string) {
	f.Emit(Line{Replica: r, Text: text, Remark: true})
}

// TakePods applies a change of the job's pods. It begins to read the logs of new pods. When ctx is done, all reading
// ends.
func (f *Streamer) TakePods(ctx context.Context, change watch.Change) {
	if change.Type == watch.Lost || change.Type == watch.Back {
		return
	}
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

// takePod begins to read the log of a pod when its container has started, and records the termination of the pod. gone
// is true if the pod was deleted.
func (f *Streamer) takePod(ctx context.Context, pod *corev1.Pod, gone bool) {
	p := f.pods[pod.UID]
	if p == nil {
		selected := PodOf(f.Selection, pod)
		if selected == nil || gone {
			return
		}
		if state := kit.ContainerState(pod, selected.Container); state.Running == nil && state.Terminated == nil {
			return
		}
		p = &stream{Pod: selected, ended: make(chan struct{})}
		if f.pods == nil {
			f.pods = map[types.UID]*stream{}
		}
		f.pods[pod.UID] = p
		f.start(ctx, p)
	}
	if t := kit.ContainerState(pod, p.Container).Terminated; t != nil {
		if !p.closed { // once closed, only the reading goroutine accesses exit
			p.exit, p.init = t, p.Container == Init(pod)
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

// attemptDelay is the longest time for which the output of an attempt waits for the rest of the previous attempt's
// output. The node of the previous attempt may not answer.
const attemptDelay = 5 * time.Second

// start reads a log in the background, after the log of the replica's previous attempt, for which it waits at most
// attemptDelay. It emits remarks about the number of the attempt, about its failure and about errors.
func (f *Streamer) start(ctx context.Context, p *stream) {
	ctx, p.cancel = context.WithCancel(ctx)
	reader := &podlog.Reader{Open: p.Open(f.Cluster), Options: f.Request, Emit: func(l podlog.Line) {
		f.Emit(Line{Replica: p.Replica, Time: l.Time, Text: l.Text})
	}}
	reader.Retrying = func(err error) {
		f.Remark(p.Replica, "the log cannot be read at present, trying again: "+err.Error())
	}
	if f.read == nil {
		f.read = map[int]chan struct{}{}
	}
	before, read := f.read[p.Index], make(chan struct{})
	f.read[p.Index] = read
	f.streams.Go(func() {
		defer close(read)
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
			case <-time.After(attemptDelay):
			}
		}
		if p.Attempt > 0 {
			f.Remark(p.Replica, fmt.Sprintf("attempt %d", p.Attempt+1))
		}
		if err := reader.Follow(ctx, p.ended); err != nil && !errors.Is(err, context.Canceled) {
			f.Remark(p.Replica, Missing(err))
			return
		}
		if ctx.Err() != nil || p.exit == nil || p.exit.ExitCode == 0 {
			return
		}
		how := fmt.Sprintf("ended with exit code %d", p.exit.ExitCode)
		if why := engine.StartFailure(p.exit); why != "" {
			how = "ended: its command cannot be started: " + why
		}
		what := fmt.Sprintf("attempt %d", p.Attempt+1)
		if p.init {
			what += ": its init container " + p.Container
		}
		f.Remark(p.Replica, what+" "+how)
	})
}

// Finish reads the rest of the logs after the job has finished. It does not wait for pods that outlive the job. gone is
// true if the job was deleted, and its pods with it. Finish returns an error if it cannot list the pods.
func (f *Streamer) Finish(ctx context.Context, gone bool) error {
	var failed error
	if !gone {
		// The end of the job may be observed before the termination of its pods.
		objects, err := f.podsNow(ctx)
		if err == nil {
			f.TakePods(ctx, watch.Change{Type: watch.Listed, Objects: objects})
		}
		failed = err
	}
	for _, p := range f.pods {
		if !p.closed {
			p.cancel()
		}
	}
	f.Wait()
	return failed
}

// Wait waits until all logs have been read. The owner must have cancelled the contexts of the logs, or their pods must
// have terminated.
func (f *Streamer) Wait() { f.streams.Wait() }

func (f *Streamer) podsNow(ctx context.Context) ([]runtime.Object, error) {
	list, err := f.Cluster.Core.Pods(f.Job.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: f.Selection.Labels(f.Job)})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	objects := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}
