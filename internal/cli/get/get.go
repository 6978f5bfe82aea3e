// Package get is "t9k get", which lists or watches jobs.
package get

import (
	"context"
	"fmt"
	"sort"
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
	watch         bool
}

// Command returns the verb.
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "get [JOB...]",
		Short: "List jobs of all kinds, or watch some",
		Long: `List the jobs of a namespace, of all kinds in one table, or the named jobs.

READY is the number of running replicas and the number of all replicas. With --watch, the command shows named jobs until
they end, in the same way as "run". Its exit code is then 0 if all of them have succeeded.`,
		Example: p.Example(
			"t9k get",
			"t9k get -A -o wide",
			"t9k get mnist --watch",
			"t9k get gj/mnist -o yaml"),
		ValidArgsFunction: p.CompleteJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.watch && (len(args) == 0 || o.output != "" || o.allNamespaces) {
				return fmt.Errorf("--watch needs the names of jobs and cannot be combined with -o or -A")
			}
			if o.allNamespaces && len(args) > 0 {
				return fmt.Errorf("a job is named in one namespace: leave out -A or the names")
			}
			return get(cmd.Context(), p, &o, args)
		},
	}
	kit.AddOutputFlag(cmd, &o.output, kit.Wide, kit.Name, kit.JSON, kit.YAML)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the jobs of all namespaces")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Follow the named jobs to their end")
	return cmd
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
	if o.watch {
		return progress.Watch(ctx, p, c, jobs, progress.Options{})
	}
	return printJobs(p, o, jobs, len(args) == 1, c.Namespace)
}

// choose returns the named jobs, or all jobs. hidden holds the errors of kinds that the user may not list.
func choose(ctx context.Context, c *kit.Cluster, o *options, args []string) (jobs []*kit.Job, hidden []error, err error) {
	if len(args) == 0 {
		namespace := c.Namespace
		if o.allNamespaces {
			namespace = ""
		}
		jobs, hidden, err := c.List(ctx, kinds.All, namespace)
		sort.SliceStable(jobs, func(a, b int) bool {
			x, y := jobs[a], jobs[b]
			if x.GetNamespace() != y.GetNamespace() {
				return x.GetNamespace() < y.GetNamespace()
			}
			return x.GetName() < y.GetName()
		})
		return jobs, hidden, err
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
		if o.allNamespaces {
			fmt.Fprintln(p.ErrOut, "No jobs.")
		} else {
			fmt.Fprintf(p.ErrOut, "No jobs in namespace %q.\n", namespace)
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
