package cli

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/kinds"
)

type getOptions struct {
	output        output
	allNamespaces bool
	watch         bool
}

func (a *app) getCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get [JOB...]",
		Short: "List jobs of all kinds, or watch some",
		Long: `List the jobs of a namespace, of all kinds in one table, or the named ones.

READY is the number of replicas that run, of those that the job wants. With --watch, named jobs are followed to their
end in the same picture that "run" shows, and the exit code tells their result: 0 if all of them have succeeded.`,
		Example: a.example(
			"t9k get",
			"t9k get -A -o wide",
			"t9k get mnist --watch",
			"t9k get gj/mnist -o yaml"),
		ValidArgsFunction: a.completeJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.watch && (len(args) == 0 || o.output != "" || o.allNamespaces) {
				return fmt.Errorf("--watch follows named jobs and goes with neither -o nor -A")
			}
			if o.allNamespaces && len(args) > 0 {
				return fmt.Errorf("a job is named in one namespace: leave out -A or the names")
			}
			return a.get(cmd.Context(), &o, args)
		},
	}
	addOutputFlag(cmd, &o.output, outputWide, outputName, outputJSON, outputYAML)
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the jobs of all namespaces")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Follow the named jobs to their end")
	return cmd
}

func (a *app) get(ctx context.Context, o *getOptions, args []string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	jobs, hidden, err := c.choose(ctx, o, args)
	if err != nil {
		return err
	}
	for _, err := range hidden {
		fmt.Fprintf(a.ErrOut, "Not shown: %v\n", err)
	}
	if o.watch {
		return a.follow(ctx, c, jobs)
	}
	return a.printJobs(o, jobs, len(args) == 1, c.namespace)
}

// choose gets the named jobs, or all of them; hidden is what the user may not list.
func (c *cluster) choose(ctx context.Context, o *getOptions, args []string) (jobs []*job, hidden []error, err error) {
	if len(args) == 0 {
		namespace := c.namespace
		if o.allNamespaces {
			namespace = ""
		}
		jobs, hidden, err := c.list(ctx, kinds.All, namespace)
		sort.SliceStable(jobs, func(a, b int) bool {
			x, y := jobs[a], jobs[b]
			if x.GetNamespace() != y.GetNamespace() {
				return x.GetNamespace() < y.GetNamespace()
			}
			return x.GetName() < y.GetName()
		})
		return jobs, hidden, err
	}
	jobs, err = c.findAll(ctx, args)
	return jobs, nil, err
}

// findAll gets every job that is named, or fails.
func (c *cluster) findAll(ctx context.Context, addresses []string) ([]*job, error) {
	var jobs []*job
	for _, address := range addresses {
		j, err := c.find(ctx, address)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (a *app) printJobs(o *getOptions, jobs []*job, single bool, namespace string) error {
	switch o.output {
	case outputJSON, outputYAML:
		if single {
			return printObject(a.Out, o.output, jobs[0].raw)
		}
		return printObject(a.Out, o.output, listOf(jobs))
	case outputName:
		for _, j := range jobs {
			fmt.Fprintln(a.Out, j.ref())
		}
		return nil
	}
	if len(jobs) == 0 {
		if o.allNamespaces {
			fmt.Fprintln(a.ErrOut, "No jobs.")
		} else {
			fmt.Fprintf(a.ErrOut, "No jobs in namespace %q.\n", namespace)
		}
		return nil
	}
	var rows []view.Job
	for _, j := range jobs {
		rows = append(rows, j.view())
	}
	t := view.Jobs(rows, time.Now(), o.allNamespaces, o.output == outputWide)
	return a.printTable(t)
}

// listOf is a v1 List of jobs.
func listOf(jobs []*job) *unstructured.UnstructuredList {
	objects := make([]*unstructured.Unstructured, len(jobs))
	for i, j := range jobs {
		objects[i] = j.raw
	}
	return listOfObjects(objects)
}
