package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/kinds"
)

func (a *app) validateCommand() *cobra.Command {
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
		Example: a.example("t9k validate -f job.yaml", "t9k validate -f a.yaml -f b.yaml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checked, err := a.check(cmd.Context(), files, a.offlineNamespace(), kinds.Limits{})
			if err != nil {
				return err
			}
			return a.report(checked)
		},
	}
	addFileFlag(cmd, &files)
	return cmd
}

// checked is what came out of checking manifests.
type checked struct {
	results []manifest.Result
	faults  []manifest.Fault
}

// check reads and checks manifests. Faults are listed in the order of the files and documents.
func (a *app) check(ctx context.Context, files []string, namespace string, limits kinds.Limits) (*checked, error) {
	if len(files) == 0 {
		return nil, errors.New("name a manifest: -f FILE")
	}
	c := &checked{}
	checker := manifest.Checker{Namespace: namespace, Limits: limits}
	for _, file := range files {
		r, name, err := a.open(file)
		if err != nil {
			return nil, err
		}
		docs, faults, err := manifest.Read(name, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		if len(docs)+len(faults) == 0 {
			return nil, fmt.Errorf("%s holds no object", name)
		}
		for _, d := range docs {
			result, err := checker.Check(ctx, d)
			if err != nil {
				return nil, err
			}
			c.results = append(c.results, result)
			faults = append(faults, result.Faults...)
		}
		manifest.Sort(faults)
		c.faults = append(c.faults, faults...)
	}
	return c, nil
}

func (a *app) report(c *checked) error {
	for _, f := range c.faults {
		fmt.Fprintln(a.Out, f)
	}
	if len(c.faults) > 0 {
		return &exitError{code: exitFailed}
	}
	st := styleOf(a.Out)
	for _, r := range c.results {
		for _, w := range r.Warnings {
			fmt.Fprintln(a.Out, w)
		}
		at := fmt.Sprintf("%s:%d: %s", r.File, r.Line, nameOf(r.Object))
		switch {
		case r.Unknown:
			fmt.Fprintln(a.Out, at, st.Paint(view.Wait, "was not checked: its schema is not known here"))
		case r.Job != nil:
			fmt.Fprintln(a.Out, at, st.Paint(view.Good, "is valid:"), view.Roles(r.Job))
		default:
			fmt.Fprintln(a.Out, at, st.Paint(view.Good, "is valid"))
		}
	}
	return nil
}

// offlineNamespace is the namespace that a cluster would be asked for, as far as can be told without one.
func (a *app) offlineNamespace() string {
	namespace, _, err := a.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}
