// Package validate implements "t9k validate", which reports the errors of a manifest without a cluster.
package validate

import (
	"fmt"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/manifest"
)

// Command returns the command "t9k validate".
func Command(p *kit.Program) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check a manifest",
		Long: `Report the errors for which admission would refuse a manifest, one line for each, without a cluster:

  FILE:LINE: PATH: MESSAGE

The command checks jobs, TensorBoards, queues and pod groups as a cluster with the operator does: unknown fields, the schema
with its rules, and the operator's own checks. It checks Kubernetes' own objects for unknown fields and wrong types. It
warns about fields that have no effect. The exit code is 1 if there is an error.

A job can have 10,000 replicas, which is the operator's default. "run" leaves this limit to the cluster.`,
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

// report prints all errors and returns a kit.ExitError. If there are none, it prints the warnings of each object
// and that the object is valid or was not checked.
func report(p *kit.Program, c *manifest.Checked) error {
	for _, f := range c.Errors {
		fmt.Fprintln(p.Out, f)
	}
	if len(c.Errors) > 0 {
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
			fmt.Fprintln(p.Out, at, st.Paint(view.Wait, "was not checked: this program has no schema for it"))
		case r.Job != nil:
			fmt.Fprintln(p.Out, at, st.Paint(view.Good, "is valid:"), view.Roles(r.Job))
		default:
			fmt.Fprintln(p.Out, at, st.Paint(view.Good, "is valid"))
		}
	}
	return nil
}
