// Package get implements "t9k get", which lists or watches jobs.
package get

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/progress"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/kinds"
)

type options struct {
	output        kit.Format
	allNamespaces bool
	labels        string
	watch         bool
}

// namespace returns the namespace to list; empty for all namespaces.
func (o *options) namespace(c *kit.Cluster) string {
	if o.allNamespaces {
		return ""
	}
	return c.Namespace
}

// Command returns the command "t9k get".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "get [JOB...]",
		Short: "List jobs of all kinds, or watch some",
		Long: `List the jobs of a namespace, of all kinds in one table, or the named jobs.

READY is the number of running replicas and the number of all replicas. With --watch, the command shows named jobs until
they finish, as "run" does. Its exit code is then 0 if all of them have succeeded. Without names, --watch shows
the list and its changes until Ctrl-C.`,
		Example: p.Example(
			"t9k get",
			"t9k get -A -o wide",
			"t9k get -l team=vision --watch",
			"t9k get mnist --watch",
			"t9k get gj/mnist -o yaml"),
		ValidArgsFunction: p.CompleteJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			return get(cmd.Context(), p, &o, args)
		},
	}
	kit.AddOutputFlag(cmd, &o.output, kit.Wide, kit.Name, kit.JSON, kit.YAML)
	kit.AddLabelFlag(cmd, &o.labels)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the jobs of all namespaces")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Watch the named jobs until they finish, or the list until Ctrl-C")
	return cmd
}

// check returns an error if flags cannot be combined with each other or with names of jobs, or if the label selector is
// invalid.
func (o *options) check(names []string) error {
	switch {
	case o.watch && o.output != "" && (o.output != kit.Wide || len(names) > 0):
		return fmt.Errorf("--watch cannot be combined with -o %s", o.output)
	case o.allNamespaces && len(names) > 0:
		return fmt.Errorf("a job is named in one namespace: leave out -A or the names")
	case o.labels != "" && len(names) > 0:
		return fmt.Errorf("-l selects jobs without names: leave out -l or the names")
	}
	return kit.CheckLabels(o.labels)
}

func get(ctx context.Context, p *kit.Program, o *options, args []string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	jobs, hidden, err := choose(ctx, c, o, args)
	if err != nil {
		return err
	}
	for _, err := range hidden {
		fmt.Fprintf(p.ErrOut, "Not shown: %v\n", err)
	}
	switch {
	case o.watch && len(args) == 0:
		return watchList(ctx, p, c, o, jobs)
	case o.watch:
		return progress.Watch(ctx, p, c, jobs, progress.Options{})
	}
	return printJobs(p, o, jobs, len(args) == 1, c.Namespace)
}

// choose returns the named jobs in their order on the command line or, without names, all jobs that the flags select,
// sorted. hidden holds the errors of kinds that the user may not list.
func choose(ctx context.Context, c *kit.Cluster, o *options, args []string) (jobs []*kit.Job, hidden []error, err error) {
	if len(args) == 0 {
		jobs, hidden, err := c.List(ctx, kinds.All, o.namespace(c), o.labels)
		return sorted(jobs), hidden, err
	}
	jobs, err = c.FindAll(ctx, args)
	return jobs, nil, err
}

func printJobs(p *kit.Program, o *options, jobs []*kit.Job, single bool, namespace string) error {
	switch o.output {
	case kit.JSON, kit.YAML:
		return kit.PrintJobs(p.Out, o.output, jobs, single)
	case kit.Name:
		p.PrintNames(jobs...)
		return nil
	}
	if len(jobs) == 0 {
		such := "jobs"
		if o.labels != "" {
			such = "such jobs"
		}
		if o.allNamespaces {
			fmt.Fprintf(p.ErrOut, "No %s.\n", such)
		} else {
			fmt.Fprintf(p.ErrOut, "No %s in namespace %q.\n", such, namespace)
		}
		return nil
	}
	var rows []view.Job
	for _, j := range jobs {
		rows = append(rows, kit.View(j))
	}
	t := view.Jobs(rows, time.Now(), o.allNamespaces, o.output == kit.Wide)
	return p.PrintTable(t)
}
