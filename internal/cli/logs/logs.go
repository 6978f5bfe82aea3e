// Package logs implements "t9k logs", which prints the output of a job's replicas, once or continuously.
package logs

import (
	"context"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/output"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/podlog"
)

type options struct {
	selection.Options
	watch      bool
	timestamps bool
	raw        bool
	tail       int64
	since      time.Duration
}

// Command returns the command "t9k logs".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print the output of the replicas of a job",
		Long: `Print the output of all replicas of a job, with the name of the replica before each line.

With -f, the command prints new output until the job has ended. If a replica restarts, the command continues with its
next attempt.

A restart replaces the pod of a replica, and the cluster does not keep the output of deleted pods. Only -f, started in
time, shows the output of all attempts. Without -f, the command lists the earlier attempts and how they ended, as far as
the cluster still has the events of the job (usually for one hour).`,
		Example: p.Example(
			"t9k logs mnist",
			"t9k logs -f mnist --role worker",
			"t9k logs mnist --role worker --rank 0-3,7 --tail 20",
			"t9k logs mnist --since 5m --timestamps"),
		Args:              kit.NeedJob,
		ValidArgsFunction: p.CompleteJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return printLogs(cmd.Context(), p, &o, args[0])
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.watch, "follow", "f", false, "Continue with new output, across restarts, until the job has ended")
	f.StringVar(&o.Role, "role", "", "Print only the replicas of this role")
	f.StringSliceVar(&o.Ranks, "rank", nil, "Print only the replicas of these ranks, such as 0 or 0-3,7")
	f.StringVarP(&o.Container, "container", "c", "", "Container; by default the main one, or an init container that failed")
	f.Int64Var(&o.tail, "tail", -1, "Print only this number of last lines of each replica; -1 prints all")
	f.DurationVar(&o.since, "since", 0, "Print only lines that are younger than this, such as 5m")
	f.BoolVar(&o.timestamps, "timestamps", false, "Begin each line with its time")
	f.BoolVar(&o.raw, "raw", false, "Do not escape control characters in the output")
	_ = cmd.RegisterFlagCompletionFunc("role", p.CompleteRoles)
	return cmd
}

func (o *options) request() corev1.PodLogOptions {
	var r corev1.PodLogOptions
	if o.tail >= 0 {
		r.TailLines = &o.tail
	}
	if o.since > 0 {
		seconds := max(1, int64(o.since.Round(time.Second).Seconds()))
		r.SinceSeconds = &seconds
	}
	return r
}

func printLogs(ctx context.Context, p *kit.Program, o *options, address string) error {
	c, j, err := p.Find(ctx, address)
	if err != nil {
		return err
	}
	sel, err := selection.New(j, o.Options)
	if err != nil {
		return err
	}
	lines := &prefixer{out: kit.Raw(p.Out), style: kit.StyleOf(p.Out), width: sel.Width, timestamps: o.timestamps, raw: o.raw}
	l := &printer{Program: p, Streamer: &output.Streamer{Cluster: c, Job: j, Selection: sel, Request: o.request(), Emit: lines.emit}}
	if o.watch {
		return l.watch(ctx)
	}
	return l.print(ctx)
}

// printer prints the logs of the selected replicas of a job.
type printer struct {
	*kit.Program
	*output.Streamer
}

// ahead is the number of logs that are requested in advance.
const ahead = 8

// print prints the existing logs of one replica after the other, by role and rank.
func (l *printer) print(ctx context.Context) error {
	list, err := l.Cluster.Core.Pods(l.Job.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: l.Selection.Labels(l.Job)})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var chosen []*output.Pod
	for i := range list.Items {
		if p := output.PodOf(l.Selection, &list.Items[i]); p != nil {
			chosen = append(chosen, p)
		}
	}
	sort.Slice(chosen, func(a, b int) bool { return chosen[a].Index < chosen[b].Index })
	history := l.history(ctx)
	answers := make(chan chan answer, ahead)
	ctx, stop := context.WithCancel(ctx)
	var requests sync.WaitGroup
	defer requests.Wait()
	defer stop()
	requests.Go(func() {
		defer close(answers)
		for _, p := range chosen {
			turn := make(chan answer, 1)
			select {
			case answers <- turn:
			case <-ctx.Done():
				return
			}
			requests.Go(func() { turn <- l.open(ctx, p) })
		}
	})
	for _, p := range chosen {
		l.reportEarlier(p.Replica, history)
		turn, ok := <-answers
		if !ok {
			return ctx.Err()
		}
		got := <-turn
		if p.Container == output.Init(p.Pod) {
			l.Remark(p.Replica, "its init container "+p.Container+" failed")
		}
		reader := podlog.Reader{Emit: l.emitter(p.Replica), Open: func(context.Context, *corev1.PodLogOptions) (io.ReadCloser, error) {
			return got.stream, got.err
		}}
		if err := reader.Once(ctx); err != nil {
			if why := output.Missing(err); why != "" {
				l.Remark(p.Replica, why)
			}
		}
		if why := engine.StartFailure(kit.ContainerState(p.Pod, p.Container).Terminated); why != "" {
			l.Remark(p.Replica, "its command cannot be started: "+why)
		}
	}
	l.reportMissing(chosen, history)
	return ctx.Err()
}

// answer is the API server's answer to the request for a log.
type answer struct {
	stream io.ReadCloser
	err    error
}

// open requests the log of a replica.
func (l *printer) open(ctx context.Context, p *output.Pod) answer {
	opts := l.Request
	opts.Timestamps = true
	stream, err := p.Open(l.Cluster)(ctx, &opts)
	return answer{stream, err}
}

// emitter returns a function that prints the lines of a replica.
func (l *printer) emitter(r selection.Replica) func(podlog.Line) {
	return func(line podlog.Line) { l.Emit(output.Line{Replica: r, Time: line.Time, Text: line.Text}) }
}
