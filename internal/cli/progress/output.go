package progress

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/output"
	"tensorstack.dev/batch/internal/cli/selection"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

// Logs selects the output of replicas that a watch shows. The zero value shows only the last lines of failed replicas.
type Logs string

// Values of the flag --logs.
const (
	// AllLogs shows the output of all replicas.
	AllLogs Logs = "all"
	// FirstLogs shows the output of the replica that decides the job's result, or else of the first replica.
	FirstLogs Logs = "first"
	// NoLogs shows no output, including the output of failed replicas.
	NoLogs Logs = "none"
)

// AddLogsFlag adds the flag --logs with the default FirstLogs.
func AddLogsFlag(cmd *cobra.Command, l *Logs) {
	*l = FirstLogs
	cmd.Flags().Var(l, "logs", "Show the output of all replicas, of the first one, or of none: all, first, none")
	_ = cmd.RegisterFlagCompletionFunc("logs", cobra.FixedCompletions([]string{string(AllLogs), string(FirstLogs), string(NoLogs)}, cobra.ShellCompDirectiveNoFileComp))
}

// String returns the value as it is written on the command line.
func (l *Logs) String() string { return string(*l) }

// Type returns the name of the value in help texts.
func (l *Logs) Type() string { return "replicas" }

// Set sets the value from the command line.
func (l *Logs) Set(s string) error {
	switch Logs(s) {
	case AllLogs, FirstLogs, NoLogs:
		*l = Logs(s)
		return nil
	}
	return fmt.Errorf("must be one of %s, %s, %s", AllLogs, FirstLogs, NoLogs)
}

// shows reports whether a watch reads the output of running replicas.
func (l Logs) shows() bool { return l == AllLogs || l == FirstLogs }

// Limits of the output of running replicas.
const (
	// paneLines is the largest number of lines of output below the live view. They take at most 1/paneShare of the
	// terminal's height.
	paneLines = 10
	paneShare = 3
	// drainTimeout limits the time for which the rest of the output is read after the jobs have finished.
	drainTimeout = 30 * time.Second
	// pendingLines is the number of lines that can wait for the display.
	pendingLines = 256
)

// jobLine is a line of the output of a job's replica.
type jobLine struct {
	output.Line
	// name is the displayed name of the replica.
	name string
}

// outputs is the output of replicas that the display shows. The display's goroutine owns it, and receives the lines
// from the goroutines that read logs through a channel.
type outputs struct {
	streamers map[*track]*output.Streamer
	lines     chan jobLine
	// width is the length of the longest name.
	width int
	// last holds the last lines for the live view of a terminal, at most paneLines, the newest at the end.
	last []view.OutputLine
}

// startOutputs begins to watch the pods whose output is shown. The goroutines that read logs end with ctx.
func (d *display) startOutputs(ctx context.Context, observe func(topic)) {
	d.out = outputs{streamers: map[*track]*output.Streamer{}, lines: make(chan jobLine, pendingLines)}
	if !d.options.Logs.shows() {
		return
	}
	for _, t := range d.unfinished() {
		sel, err := d.options.Logs.selection(t)
		if err != nil {
			continue // the spec is invalid, and the job's conditions give the reason
		}
		before := d.before(t)
		d.out.width = max(d.out.width, utf8.RuneCountInString(before)+sel.Width)
		d.out.streamers[t] = &output.Streamer{Cluster: d.cluster, Job: t.Job, Selection: sel, Emit: func(l output.Line) {
			select {
			case d.out.lines <- jobLine{l, before + l.String()}:
			case <-ctx.Done():
			}
		}}
		observe(topic{track: t, about: ofOutput})
	}
}

// before returns the text before a replica's name in a line of output: the address of the job and a space if several
// jobs are watched, and otherwise nothing.
func (d *display) before(t *track) string {
	if len(d.tracks) > 1 {
		return t.Ref() + " "
	}
	return ""
}

// selection returns the replicas of a job whose output is shown.
func (l Logs) selection(t *track) (*selection.Selection, error) {
	if l == AllLogs || t.normal == nil {
		return selection.New(t.Job, selection.Options{})
	}
	role, rank := firstReplica(t)
	return selection.New(t.Job, selection.Options{Role: role, Ranks: []string{rank}})
}

// firstReplica returns the replica that decides the job's result, or else the first replica.
func firstReplica(t *track) (role, rank string) {
	if decides := observed.Decides(t.normal); decides != "" {
		i := strings.LastIndexByte(decides, '-')
		return decides[:i], decides[i+1:]
	}
	for i := range t.normal.Roles {
		if t.normal.Roles[i].Replicas > 0 {
			return t.normal.Roles[i].Type, "0"
		}
	}
	return t.normal.Roles[0].Type, "0"
}

// takeLines takes a line and the lines that wait in d.out.lines, at most pendingLines of them.
func (d *display) takeLines(l jobLine) {
	d.takeLine(l)
	for range pendingLines {
		select {
		case l = <-d.out.lines:
			d.takeLine(l)
		default:
			return
		}
	}
}

// takeLine prints a line or, on a terminal, keeps it for the live view.
func (d *display) takeLine(l jobLine) {
	text := view.OutputLine{Name: l.name, Colour: output.Colour(l.Replica), Text: l.Text, Width: d.out.width}
	if l.Remark {
		text.Text, text.TextColour = output.RemarkText(l.Text), view.Dim
	}
	if d.screen == nil {
		fmt.Fprintln(d.Out, text.Line(d.style))
		return
	}
	if len(d.out.last) == paneLines {
		d.out.last = d.out.last[1:]
	}
	d.out.last = append(d.out.last, text)
}

// takeOutputPods applies a change of the pods whose output is shown.
func (d *display) takeOutputPods(ctx context.Context, n update) {
	s := d.out.streamers[n.About.track]
	if n.Err == nil {
		s.TakePods(ctx, n.Change)
		return
	}
	// The error, such as a missing permission to read pods, is shown once, for the first replica.
	for _, r := range s.Selection.Replicas() {
		d.takeLine(jobLine{output.Line{Replica: r, Text: output.Missing(n.Err), Remark: true}, d.before(n.About.track) + r.String()})
		return
	}
}

// pane returns the lines of output below the live view of a terminal, with an empty line before them.
func (d *display) pane(width, height int) []string {
	if len(d.out.last) == 0 {
		return nil
	}
	return append([]string{""}, view.Output(d.out.last, d.style, width, min(paneLines, height/paneShare))...)
}

// drain shows the rest of the output after all jobs have finished. After drainTimeout, it calls stop, which ends the
// goroutines that read logs.
func (d *display) drain(ctx context.Context, stop func()) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var reading sync.WaitGroup
	for t, s := range d.out.streamers {
		reading.Go(func() {
			// If the API server does not answer, only the output that was read so far is shown.
			_ = s.Finish(ctx, t.Deleted)
		})
	}
	read := make(chan struct{})
	go func() {
		reading.Wait()
		close(read)
	}()
	expired := ctx.Done()
	for {
		select {
		case l := <-d.out.lines:
			d.takeLine(l)
		case <-expired:
			stop()
			expired = nil
		case <-read:
			for len(d.out.lines) > 0 {
				d.takeLine(<-d.out.lines)
			}
			return d.draw()
		}
	}
}

// outputHint returns the command that prints all output of a job.
func (d *display) outputHint(j *kit.Job) string {
	return d.Again(d.cluster, j.GetNamespace(), "logs "+j.Ref())
}
