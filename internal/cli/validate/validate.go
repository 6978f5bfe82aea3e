// Package validate is "t9k validate", which reports the faults of a manifest without a cluster.
package validate

import (
	"fmt"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/cli/view"
)

// Command returns the verb.
func Command(p *kit.Program) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Say what is wrong with a manifest",
		Long: `Check manifests without any cluster and say all that admission would object to, one line for each fault:

  FILE:LINE: PATH: MESSAGE

Jobs, TensorBoards, queues and pod groups are checked as a cluster with the operator would check them: fields that do not
exist, the schema with its rules, and what only code can tell. Objects of Kubernetes itself are checked for fields that do
not exist and values of the wrong type. What an object says to no effect is told as a warning. The exit code is 1 if there
is any fault.

Jobs are held to the usual limit of 10,000 replicas. "run" leaves it to the cluster how large a job may be.`,
		Example: p.Example("t9k validate -f job.yaml", "t9k validate -f a.yaml -f b.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checker := manifest.Checker{Namespace: p.OfflineNamespace()}
			checked, err := checker.CheckFiles(cmd.Context(), p.Open, files)
			if err != nil {
				return err
			}
			return report(p, checked)
		},
	}
	kit.AddFileFlag(cmd, &files)
	return cmd
}

// report prints the faults of each object, or that it is valid.
func report(p *kit.Program, c *manifest.Checked) error {
	for _, f := range c.Faults {
		fmt.Fprintln(p.Out, f)
	}
	if len(c.Faults) > 0 {
		return &kit.ExitError{Code: kit.ExitFailed}
	}
	st := kit.StyleOf(p.Out)
	for _, r := range c.Results {
		for _, w := range r.Warnings {
			fmt.Fprintln(p.Out, w)
		}
		at := fmt.Sprintf("%s:%d: %s", r.File, r.Line, manifest.NameOf(r.Object))
		switch {
		case r.Unknown:
			fmt.Fprintln(p.Out, at, st.Paint(view.Wait, "was not checked: its schema is not known here"))
		case r.Job != nil:
			fmt.Fprintln(p.Out, at, st.Paint(view.Good, "is valid:"), view.Roles(r.Job))
		default:
			fmt.Fprintln(p.Out, at, st.Paint(view.Good, "is valid"))
		}
	}
	return nil
}
