package progress

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/observed"
)

// Limits of the output about a finished job: the number of failed replicas, and the number of lines of the log of each.
const (
	failedShown = 3
	linesShown  = 10
)

// conclude prints the result of every job. It returns a kit.ExitError unless all jobs have succeeded.
func (d *display) conclude(ctx context.Context) error {
	code := 0
	for _, t := range d.tracks {
		fmt.Fprintln(d.Out)
		if t.Deleted {
			fmt.Fprintf(d.Out, "%s was deleted before it ended\n", t.Ref())
			code = kit.ExitFailed
			continue
		}
		if err := kit.PrintLines(d.Out, view.Summary(t.view(), d.style, d.terminal.Width())); err != nil {
			return err
		}
		if _, succeeded := observed.Finished(t.Status()); !succeeded {
			code = kit.ExitFailed
			d.printFailures(ctx, t.Job)
		}
	}
	if code != 0 {
		return &kit.ExitError{Code: code}
	}
	return nil
}

// printFailures prints how the first failedShown failed replicas ended, and the command that prints all output. If no
// replica has failed, it prints nothing.
func (d *display) printFailures(ctx context.Context, j *kit.Job) {
	shown, more := 0, 0
	for _, task := range j.Status().Tasks {
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
			d.printFailure(ctx, j, task.Type, r)
		}
	}
	if shown > 0 {
		left := ""
		if more > 0 {
			left = fmt.Sprintf("%d more failed. ", more)
		}
		fmt.Fprintf(d.Out, "\n%sAll output that still exists: %s\n", left, d.outputHint(j))
	}
}

// printFailure prints how one replica ended: why its command could not be started, or else its exit code and, unless
// Options.Logs is NoLogs, the last lines of its log.
func (d *display) printFailure(ctx context.Context, j *kit.Job, role string, r *batch.ReplicaStatus) {
	ctx, cancel := context.WithTimeout(ctx, kit.RequestTimeout)
	defer cancel()
	name := d.style.Paint(view.Bad, fmt.Sprintf("%s-%d", role, observed.RankOf(r.Name)))
	container, detail := mainContainer(j, role), view.Failure(r)
	// The error is ignored: a user without the right to read pods can have the right to read their logs.
	if pod, err := d.cluster.Core.Pods(j.GetNamespace()).Get(ctx, r.Name, metav1.GetOptions{}); err == nil {
		if end := observed.End(pod); end.Init {
			container, detail = end.Container, fmt.Sprintf("failed: exit code %d, %s", *end.ExitCode, end.Cause())
		}
		if why := engine.StartFailure(kit.ContainerState(pod, container).Terminated); why != "" {
			fmt.Fprintf(d.Out, "\n%s failed: its command could not be started:\n", name)
			d.printWrapped("  ", "%s", why)
			return
		}
	}
	fmt.Fprintf(d.Out, "\n%s %s\n", name, detail)
	if d.options.Logs != NoLogs {
		d.tail(ctx, j, role, container, r)
	}
}

// tail prints the last lines of a replica's log, from the archive if the pod is gone.
func (d *display) tail(ctx context.Context, j *kit.Job, role, container string, r *batch.ReplicaStatus) {
	lines := int64(linesShown)
	stream, err := d.cluster.Core.Pods(j.GetNamespace()).GetLogs(r.Name, &corev1.PodLogOptions{
		Container: container, TailLines: &lines,
	}).Stream(ctx)
	switch {
	case apierrors.IsNotFound(err):
		d.archivedTail(ctx, j, fmt.Sprintf("%s-%d", role, observed.RankOf(r.Name)), container)
		return
	case err != nil:
		fmt.Fprintln(d.Out, d.style.Paint(view.Dim, fmt.Sprintf("  its log cannot be read: %v", err)))
		return
	}
	defer stream.Close()
	printed := false
	for s := bufio.NewReader(stream); ; {
		line, err := s.ReadString('\n')
		if line != "" {
			fmt.Fprintf(d.Out, "  %s %s", d.style.Paint(view.Dim, "|"), view.Escape(line))
			printed = true
		}
		if err != nil {
			if err == io.EOF && line != "" {
				fmt.Fprintln(d.Out)
			}
			break
		}
	}
	if !printed {
		fmt.Fprintln(d.Out, d.style.Paint(view.Dim, "  it has no output"))
	}
}

// mainContainer returns the name of the main container of a role; empty if the spec is invalid or has no such role.
func mainContainer(j *kit.Job, role string) string {
	normal, err := j.Normal()
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
