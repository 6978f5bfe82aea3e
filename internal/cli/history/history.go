// Package history implements "t9k history", which shows jobs from the console's archive, including deleted jobs.
package history

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/archive"
	"tensorstack.dev/batch/internal/cli/archiveclient"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
)

// options holds the program and the flags that all verbs of history share.
type options struct {
	*kit.Program
	from archiveclient.Options
}

func (o *options) connect() (*archiveclient.Client, error) {
	return archiveclient.Connect(o.Program, o.from)
}

// Command returns the command "t9k history".
func Command(p *kit.Program) *cobra.Command {
	o := &options{Program: p}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show past jobs, including deleted ones",
		Long: `Show jobs from the console's archive, including deleted jobs, with the attempts of their replicas, their events, the ends
of their logs, and their usage.

--console or the variable T9K_CONSOLE names the console. The command sends it the bearer token of your kubeconfig, and
the console shows the jobs of the namespaces in which you may get jobs now. The kubeconfig of an embedded cluster contains
the address of its archive.`,
		Example: p.Example("t9k history list --since 24h", "t9k history describe mnist", "t9k history logs mnist", "t9k history usage --by user --since 720h"),
	}
	cmd.PersistentFlags().StringVar(&o.from.Console, "console", "", "Address of the console, such as https://console.example.org; default: $T9K_CONSOLE, or the archive that the kubeconfig names")
	cmd.PersistentFlags().StringVar(&o.from.Authority, "console-ca", "", "File with the certificate authority of the console; default: the authorities that this machine trusts")
	cmd.AddCommand(o.listCommand(), o.describeCommand(), o.logsCommand(), o.usageCommand())
	return cmd
}

// stamp formats a time for tables, in UTC. For the zero time, it returns a dash.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printJSON prints the response of the console.
func (o *options) printJSON(answer any) error {
	e := json.NewEncoder(o.Out)
	e.SetIndent("", "  ")
	if err := e.Encode(answer); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

type listOptions struct {
	output                            kit.Format
	allNamespaces, gone               bool
	user, queue, phase, outcome, text string
	since                             time.Duration
	limit                             int
}

func (o *options) listCommand() *cobra.Command {
	var l listOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, the newest first",
		Long: `List the jobs of a namespace, the newest first. The outcome "Deleted" means that the job was deleted before it
finished. Times are in UTC.`,
		Example: o.Example("t9k history list -A --since 24h --phase Failed", "t9k history list --text mnist --gone"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.connect()
			if err != nil {
				return err
			}
			q := archive.JobQuery{User: l.user, Queue: l.queue, Phase: l.phase, Outcome: l.outcome, Text: l.text, Gone: l.gone, Limit: l.limit}
			if !l.allNamespaces {
				q.Namespace = c.Namespace
			}
			if l.since > 0 {
				q.From = time.Now().Add(-l.since)
			}
			answer, err := c.Jobs(cmd.Context(), &q)
			if err != nil {
				return err
			}
			return o.printList(&l, answer, c.Namespace)
		},
	}
	kit.AddOutputFlag(cmd, &l.output, kit.JSON)
	f := cmd.Flags()
	f.BoolVarP(&l.allNamespaces, "all-namespaces", "A", false, "List the jobs of all namespaces where you may see them")
	f.BoolVar(&l.gone, "gone", false, "Only jobs that no longer exist")
	f.StringVar(&l.user, "submitted-by", "", "Only jobs that this user submitted to a queue")
	f.StringVar(&l.queue, "queue", "", "Only jobs of this queue")
	f.StringVar(&l.phase, "phase", "", "Only jobs with this last phase, such as Failed")
	f.StringVar(&l.outcome, "outcome", "", "Only jobs with this outcome, such as Deleted")
	f.StringVar(&l.text, "text", "", "Only jobs whose names contain this text")
	f.DurationVar(&l.since, "since", 0, "Only jobs that had not finished before this period, such as 24h")
	f.IntVar(&l.limit, "limit", 100, "Largest number of jobs")
	return cmd
}

func (o *options) printList(l *listOptions, answer *archive.JobList, namespace string) error {
	if l.output == kit.JSON {
		return o.printJSON(answer)
	}
	if len(answer.Jobs) == 0 {
		where := "that you may see"
		if !l.allNamespaces {
			where = fmt.Sprintf("in namespace %q", namespace)
		}
		fmt.Fprintf(o.ErrOut, "The archive has no such jobs %s.\n", where)
		return nil
	}
	t := view.Table{Header: []string{"KIND", "NAME", "OUTCOME", "REPLICAS", "RESTARTS", "QUEUE", "USER", "CREATED", "ENDED", "GONE"}}
	if l.allNamespaces {
		t.Header = append([]string{"NAMESPACE"}, t.Header...)
	}
	for _, j := range answer.Jobs {
		row := view.Plainly(j.Kind, j.Name, j.Outcome(), fmt.Sprint(j.Replicas), fmt.Sprint(j.Restarts), dash(j.Queue), dash(j.User), stamp(j.Created), stamp(j.Ended), stamp(j.Gone))
		if l.allNamespaces {
			row = append(view.Plainly(j.Namespace), row...)
		}
		t.Rows = append(t.Rows, row)
	}
	if err := o.PrintTable(t); err != nil {
		return err
	}
	if answer.More {
		fmt.Fprintf(o.ErrOut, "There are more than %d: --limit shows more, other flags select.\n", len(answer.Jobs))
	}
	return nil
}

func (o *options) usageCommand() *cobra.Command {
	var by, format string
	var since, step time.Duration
	var all bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show the GPU-hours of queues, namespaces or users",
		Long: `Show for how many hours jobs held extended resources such as nvidia.com/gpu: the requests of their pods, from the time at
which each pod was bound to a node until it terminated. --all adds core-hours of CPU and GiB-hours of memory. Jobs without
a queue have neither queue nor user.`,
		Example: o.Example("t9k history usage --since 168h --step 24h", "t9k history usage --by user -o csv > usage.csv"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "" && format != "csv" && format != "json" {
				return fmt.Errorf("-o %s is none of csv, json", format)
			}
			c, err := o.connect()
			if err != nil {
				return err
			}
			now := time.Now().UTC().Truncate(time.Second)
			answer, err := c.Usage(cmd.Context(), &archive.UsageQuery{Span: archive.Span{From: now.Add(-since), To: now, Step: step}, By: archive.By(by), Extended: !all})
			if err != nil {
				return err
			}
			switch format {
			case "json":
				return o.printJSON(answer)
			case "csv":
				return archive.WriteCSV(kit.Raw(o.Out), archive.By(by), answer.Usage)
			}
			t := view.Table{Header: []string{"FROM", "TO", "KEY", "RESOURCE", "HOURS"}}
			for _, u := range answer.Usage {
				t.Rows = append(t.Rows, view.Plainly(stamp(u.From), stamp(u.To), dash(u.Key), u.Resource, fmt.Sprintf("%.3f", u.Hours)))
			}
			if len(t.Rows) == 0 {
				fmt.Fprintln(o.ErrOut, "No job that you may see has used any.")
				return nil
			}
			return o.PrintTable(t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&by, "by", "queue", "Key of the sums: queue, namespace or user")
	f.DurationVar(&since, "since", 30*24*time.Hour, "Length of the period to count, which ends now")
	f.DurationVar(&step, "step", 0, "Interval for which separate sums are printed, such as 24h; 0 prints one sum")
	f.BoolVar(&all, "all", false, "Also count CPU and memory")
	f.StringVarP(&format, "output", "o", "", "Output format: csv, json")
	return cmd
}
