package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// What is shown of failed replicas when their job has ended.
const (
	failedShown = 3
	linesShown  = 10
)

// conclude has the last word on every job.
func (f *following) conclude(ctx context.Context) error {
	code := 0
	for _, t := range f.tracks {
		fmt.Fprintln(f.Out)
		if t.deleted {
			fmt.Fprintf(f.Out, "%s was deleted before it ended\n", t.ref())
			code = exitFailed
			continue
		}
		if err := printLines(f.Out, view.Summary(t.view(), f.style, f.terminal.width())); err != nil {
			return err
		}
		if _, succeeded := view.Finished(t.status()); !succeeded {
			code = exitFailed
			f.lastWords(ctx, t.job)
		}
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// lastWords shows how the first failed replicas ended.
func (f *following) lastWords(ctx context.Context, j *job) {
	shown, more := 0, 0
	for _, task := range j.status().Tasks {
		for k := range task.Replicas {
			r := &task.Replicas[k]
			if r.Phase != batch.ReplicaFailed {
				continue
			}
			if shown == failedShown {
				more++
				continue
			}
			shown++
			f.lastWordsOf(ctx, j, task.Type, r)
		}
	}
	if shown > 0 {
		left := ""
		if more > 0 {
			left = fmt.Sprintf("%d more failed. ", more)
		}
		fmt.Fprintf(f.Out, "\n%sAll output that is left: %s\n", left, f.again(f.cluster, j.GetNamespace(), "logs "+j.ref()))
	}
}

// lastWordsOf shows how one replica ended: why its command could not be started, or else the last lines that it wrote.
func (f *following) lastWordsOf(ctx context.Context, j *job, role string, r *batch.ReplicaStatus) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := f.style.Paint(view.Bad, fmt.Sprintf("%s-%d", role, view.RankOf(r.Name)))
	container := mainContainer(j, role)
	// Whoever may not read pods may still read their logs.
	if pod, err := f.cluster.core.Pods(j.GetNamespace()).Get(ctx, r.Name, metav1.GetOptions{}); err == nil {
		if why := engine.StartFailure(containerState(pod, container).Terminated); why != "" {
			fmt.Fprintf(f.Out, "\n%s failed: its command cannot be started:\n", name)
			f.say("  ", "%s", why)
			return
		}
	}
	fmt.Fprintf(f.Out, "\n%s %s\n", name, view.Failure(r))
	f.tail(ctx, j, container, r)
}

// tail prints the last lines of a replica's log.
func (f *following) tail(ctx context.Context, j *job, container string, r *batch.ReplicaStatus) {
	lines := int64(linesShown)
	stream, err := f.cluster.core.Pods(j.GetNamespace()).GetLogs(r.Name, &corev1.PodLogOptions{
		Container: container, TailLines: &lines,
	}).Stream(ctx)
	switch {
	case apierrors.IsNotFound(err):
		fmt.Fprintln(f.Out, f.style.Paint(view.Dim, "  its pod is gone, and its log with it"))
		return
	case err != nil:
		fmt.Fprintln(f.Out, f.style.Paint(view.Dim, fmt.Sprintf("  its log cannot be read: %v", err)))
		return
	}
	defer stream.Close()
	printed := false
	for s := bufio.NewReader(stream); ; {
		line, err := s.ReadString('\n')
		if line != "" {
			fmt.Fprintf(f.Out, "  %s %s", f.style.Paint(view.Dim, "|"), view.Escape(line))
			printed = true
		}
		if err != nil {
			if err == io.EOF && line != "" {
				fmt.Fprintln(f.Out)
			}
			break
		}
	}
	if !printed {
		fmt.Fprintln(f.Out, f.style.Paint(view.Dim, "  it wrote nothing"))
	}
}

// mainContainer is the name of the main container of a role; empty where the spec does not say.
func mainContainer(j *job, role string) string {
	normal, err := j.lowered()
	if err != nil {
		return ""
	}
	for i := range normal.Roles {
		if r := &normal.Roles[i]; r.Type == role && r.Main < len(r.Template.Spec.Containers) {
			return r.Template.Spec.Containers[r.Main].Name
		}
	}
	return ""
}
