// Package render implements "t9k render", which prints the objects that the operator creates for the jobs of a
// manifest, without a cluster.
package render

import (
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/manifest"
	"tensorstack.dev/batch/internal/observed"
)

// Command returns the command "t9k render".
func Command(p *kit.Program) *cobra.Command {
	var files []string
	o := kit.YAML
	cmd := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print the objects that the operator creates for jobs",
		Long: `Print the objects that the operator creates for the jobs of a manifest when they first start: PodGroup, Service and pods.
The command needs no cluster. With -o json it prints one v1 List.

The objects lack what only a cluster can add: the job's UID in owner references, and changes by admission. The cluster's
DNS domain is "cluster.local".`,
		Example: p.Example("t9k render -f job.yaml", "t9k render -f job.yaml -o json"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checker := manifest.Checker{Namespace: p.OfflineNamespace(), Limits: observed.AsInstalled}
			checked, err := checker.CheckFiles(cmd.Context(), p.Open, files)
			if err != nil {
				return err
			}
			if len(checked.Errors) > 0 {
				for _, f := range checked.Errors {
					fmt.Fprintln(p.ErrOut, f)
				}
				return &kit.ExitError{Code: kit.ExitFailed}
			}
			return p.PrintEach(o, rendered(checked))
		},
	}
	kit.AddFileFlag(cmd, &files)
	kit.AddOutputFlag(cmd, &o, kit.YAML, kit.JSON)
	return cmd
}

// rendered yields the objects of the jobs in the order in which the operator creates them.
func rendered(c *manifest.Checked) iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for _, r := range c.Results {
			if r.Job == nil {
				continue
			}
			for object, err := range observed.Rendered(r.Job, time.Now(), 0) {
				if !yield(object, err) {
					return
				}
			}
		}
	}
}
