package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/cli/archiveclient"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

// find connects to the console and returns the newest job with an address in the default namespace, and prints the UIDs
// of up to five older jobs with this address. With a UID, it returns the job with the UID, in any namespace. The
// address must name that job.
func (o *options) find(ctx context.Context, address, uid string) (*archiveclient.Client, *archive.JobDetails, error) {
	c, err := o.connect()
	if err != nil {
		return nil, nil, err
	}
	kind, name, err := kit.ParseAddress(address)
	if err != nil {
		return nil, nil, err
	}
	q := archive.JobQuery{Namespace: c.Namespace, Name: name}
	if kind != nil {
		q.Kind = kind.Name
	}
	found := &archive.JobList{}
	if uid == "" {
		if found, err = c.Jobs(ctx, &q); err != nil {
			return nil, nil, err
		}
		if len(found.Jobs) == 0 {
			return nil, nil, fmt.Errorf("the archive has no job %q in namespace %q that you may see", address, c.Namespace)
		}
		uid = found.Jobs[0].UID
	}
	j, err := c.Job(ctx, uid)
	if err != nil {
		return nil, nil, err
	}
	if j.Name != name || kind != nil && j.Kind != kind.Name {
		return nil, nil, fmt.Errorf("the job with the UID %s is %s in namespace %s, not %s", uid, strings.ToLower(j.Kind)+"/"+j.Name, j.Namespace, address)
	}
	if len(found.Jobs) > 1 {
		older := make([]string, 0, len(found.Jobs)-1)
		for _, j := range found.Jobs[1:] {
			older = append(older, fmt.Sprintf("--uid %s (%s, %s)", j.UID, strings.ToLower(j.Kind), stamp(j.Created)))
		}
		fmt.Fprintf(o.ErrOut, "This is the newest job with that name. Older ones: %s\n", strings.Join(older[:min(len(older), 5)], ", "))
	}
	return c, j, nil
}

func (o *options) describeCommand() *cobra.Command {
	var uid string
	var output kit.Format
	cmd := &cobra.Command{
		Use:     "describe JOB",
		Short:   "Show a job in detail: conditions, replicas, attempts, events",
		Long:    `Show a job as it was last seen, the history of its conditions, every attempt of its replicas, and its events.`,
		Example: o.Example("t9k history describe mnist", "t9k history describe gj/mnist -o json"),
		Args:    kit.NeedJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, j, err := o.find(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			if output == kit.JSON {
				return o.printJSON(j)
			}
			return o.describe(j)
		},
	}
	kit.AddOutputFlag(cmd, &output, kit.JSON)
	cmd.Flags().StringVar(&uid, "uid", "", "Select the job with this UID if several jobs had the name")
	return cmd
}

func (o *options) describe(j *archive.JobDetails) error {
	job, err := j.Observed()
	if err != nil {
		return err
	}
	d := view.Description{Job: kit.View(job), Meta: job, Gone: j.Gone}
	if d.Normal, err = job.Normal(); err != nil {
		d.Invalid = err.Error()
	}
	for _, raw := range j.Events {
		var e corev1.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("reading the console's answer: %w", err)
		}
		d.Events = append(d.Events, e)
	}
	style, width := kit.StyleOf(o.Out), kit.TerminalOf(o.Out).Width()
	lines := d.Lines(time.Now(), style, width)
	add := func(title string, t view.Table) {
		lines = append(lines, "", style.Paint(view.Bold, title))
		lines = append(lines, t.Lines(style, "  ", width)...)
	}
	if len(j.Attempts) > 0 {
		add("Attempts:", attempts(j.Attempts))
	}
	if len(j.Conditions) > 0 {
		add("History of the conditions:", conditions(j.Conditions))
	}
	return kit.PrintLines(o.Out, lines)
}

func attempts(all []archive.AttemptDetails) view.Table {
	t := view.Table{Header: []string{"REPLICA", "ATTEMPT", "NODE", "CREATED", "STARTED", "ENDED", "END"}}
	for _, a := range all {
		end := string(a.Outcome)
		switch {
		case end == "":
			end = "-"
		case a.ExitCode != nil && *a.ExitCode != 0:
			end += fmt.Sprintf(", exit code %d", *a.ExitCode)
		}
		if a.Cause != "" {
			end += ", " + observed.OneLine(a.Cause)
		}
		t.Rows = append(t.Rows, view.Plainly(fmt.Sprintf("%s-%d", a.Role, a.Rank), fmt.Sprint(archive.Ordinal(a.Number)), dash(a.Node), stamp(a.Created), stamp(a.Started), stamp(a.Ended), end))
	}
	return t
}

func conditions(all []archive.Condition) view.Table {
	t := view.Table{Header: []string{"SINCE", "TYPE", "STATUS", "REASON", "MESSAGE"}, Text: true}
	for _, c := range all {
		t.Rows = append(t.Rows, view.Plainly(stamp(c.Since), c.Type, c.Status, c.Reason, observed.OneLine(c.Message)))
	}
	return t
}

func (o *options) logsCommand() *cobra.Command {
	var uid, replica string
	var timestamps bool
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print the ends of the logs of a job's replicas",
		Long: `Print the end of the log of each attempt of each replica, ordered by time. The archive keeps the last 64 KiB of each log,
as far as it could be read before the pod was deleted. worker-0#2 is the second attempt of worker-0.`,
		Example: o.Example("t9k history logs mnist", "t9k history logs mnist -r worker-0 --timestamps"),
		Args:    kit.NeedJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, j, err := o.find(cmd.Context(), args[0], uid)
			if err != nil {
				return err
			}
			answer, err := c.Logs(cmd.Context(), j.UID, replica)
			if err != nil {
				return err
			}
			if len(answer.Logs) == 0 {
				fmt.Fprintln(o.ErrOut, "The archive has no such log of this job.")
				return nil
			}
			return kit.PrintLines(o.Out, merged(answer.Logs, timestamps))
		},
	}
	cmd.Flags().StringVar(&uid, "uid", "", "Select the job with this UID if several jobs had the name")
	cmd.Flags().StringVarP(&replica, "replica", "r", "", "Only this replica, as ROLE-RANK")
	cmd.Flags().BoolVar(&timestamps, "timestamps", false, "Begin each line with its time")
	return cmd
}

// merged returns the lines of all logs, sorted by time. Each line begins with its source, as archive.LogText.Source
// returns it. A line without a time stays behind the line before it in its log, or comes first if there is none. Unless
// timestamps is true, the times are left out.
func merged(logs []archive.LogText, timestamps bool) []string {
	type line struct {
		at   time.Time
		text string
	}
	containers := map[string]map[string]bool{}
	for _, l := range logs {
		if containers[l.Replica()] == nil {
			containers[l.Replica()] = map[string]bool{}
		}
		containers[l.Replica()][l.Container] = true
	}
	var all []line
	for _, l := range logs {
		name := l.Source(len(containers[l.Replica()]) > 1)
		var last time.Time
		for text := range strings.SplitSeq(strings.TrimSuffix(l.Text, "\n"), "\n") {
			stamp, rest, _ := strings.Cut(text, " ")
			if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
				last = at
				if !timestamps {
					text = rest
				}
			}
			all = append(all, line{last, "[" + name + "] " + text})
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	lines := make([]string, len(all))
	for i := range all {
		lines[i] = all[i].text
	}
	return lines
}
