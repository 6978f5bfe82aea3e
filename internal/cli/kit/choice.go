package kit

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"tensorstack.dev/batch/internal/kinds"
)

// Choice selects jobs of a namespace without their names: by labels, or all jobs.
type Choice struct {
	// Labels is a label selector in kubectl's format. If it is empty and All is false, jobs are selected by name.
	Labels string
	// All selects every job.
	All bool
}

// AddChoiceFlags adds the flags -l and --all, which replace the names of jobs. It sets cmd.Args to a function that
// accepts either names or one of the flags. all is the help text of --all.
func AddChoiceFlags(cmd *cobra.Command, o *Choice, all string) {
	AddLabelFlag(cmd, &o.Labels)
	cmd.Flags().BoolVar(&o.All, "all", false, all)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := o.check(args); err != nil {
			return err
		}
		if o.named() {
			return NeedJobs(cmd, args)
		}
		return nil
	}
}

// AddLabelFlag adds the flag -l.
func AddLabelFlag(cmd *cobra.Command, labels *string) {
	cmd.Flags().StringVarP(labels, "selector", "l", "", "Only the jobs with these labels, such as team=vision,stage!=test")
}

// named reports whether the jobs are selected by their names.
func (o *Choice) named() bool { return o.Labels == "" && !o.All }

// check returns an error if flags cannot be combined with each other or with names of jobs, or if the label selector is
// invalid.
func (o *Choice) check(names []string) error {
	switch {
	case o.Labels != "" && o.All:
		return errors.New("-l selects some jobs and --all every job: leave one of them out")
	case !o.named() && len(names) > 0:
		return errors.New("-l and --all select jobs without names: leave out the names, or the flag")
	}
	return CheckLabels(o.Labels)
}

// CheckLabels returns an error if a label selector cannot be parsed.
func CheckLabels(selector string) error {
	if _, err := labels.Parse(selector); err != nil {
		return fmt.Errorf("-l: %w", err)
	}
	return nil
}

// Choose connects to the cluster and returns the jobs that o selects or, if o is zero, the named jobs. It prints which
// kinds it left out because the user may not list them, and a line if o selects no job.
func (p *Program) Choose(ctx context.Context, o *Choice, names []string) (*Cluster, []*Job, error) {
	if o.named() {
		return p.FindAll(ctx, names)
	}
	c, err := p.Connect()
	if err != nil {
		return nil, nil, err
	}
	jobs, hidden, err := c.List(ctx, kinds.All, c.Namespace, o.Labels)
	if err != nil {
		return nil, nil, err
	}
	for _, err := range hidden {
		fmt.Fprintf(p.ErrOut, "Left out: %v\n", err)
	}
	if len(jobs) == 0 {
		fmt.Fprintf(p.ErrOut, "No such jobs in namespace %q.\n", c.Namespace)
	}
	return c, jobs, nil
}
