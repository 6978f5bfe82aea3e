package cli

import (
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tensorstack.dev/batch/internal/engine"
)

func (a *app) renderCommand() *cobra.Command {
	var files []string
	o := outputYAML
	cmd := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print the objects that the jobs of a manifest yield",
		Long: `Print, without any cluster, every object that the operator creates for the jobs of a manifest when they first start:
PodGroup, Service and pods, as they are sent to the API server. JSON is one v1 List of them all.

What only a cluster can tell is not in them: the job's UID in owner references, and what admission adds. Names of the
cluster's DNS domain are written with the usual "cluster.local".`,
		Example: a.example("t9k render -f job.yaml", "t9k render -f job.yaml -o json"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checked, err := a.check(cmd.Context(), files, a.offlineNamespace(), asInstalled)
			if err != nil {
				return err
			}
			if len(checked.faults) > 0 {
				for _, f := range checked.faults {
					fmt.Fprintln(a.ErrOut, f)
				}
				return &exitError{code: exitFailed}
			}
			return a.printRendered(o, rendered(checked))
		},
	}
	addFileFlag(cmd, &files)
	addOutputFlag(cmd, &o, outputYAML, outputJSON)
	return cmd
}

// rendered yields what the jobs become, in the order in which the operator creates it.
func rendered(c *checked) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for _, r := range c.results {
			if r.Job == nil {
				continue
			}
			plan := engine.Next(r.Job, engine.Seen{Now: time.Now()}, engine.Config{})
			for object := range plan.Objects(r.Job) {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
				if err != nil {
					err = fmt.Errorf("rendering %s: %w", object.GetName(), err)
				}
				delete(content, "status") // nothing has been observed of it yet
				if !yield(&unstructured.Unstructured{Object: content}, err) {
					return
				}
			}
		}
	}
}

// printRendered prints objects as they come, as YAML, or as one list of JSON.
func (a *app) printRendered(o output, objects iter.Seq2[*unstructured.Unstructured, error]) error {
	var list []*unstructured.Unstructured
	separator := ""
	for u, err := range objects {
		if err != nil {
			return err
		}
		if o == outputJSON {
			list = append(list, u)
			continue
		}
		fmt.Fprint(a.Out, separator)
		separator = "---\n"
		if err := printObject(a.Out, o, u); err != nil {
			return err
		}
	}
	if o == outputJSON {
		return printObject(a.Out, o, listOfObjects(list))
	}
	return nil
}
