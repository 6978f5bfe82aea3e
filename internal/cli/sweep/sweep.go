// Package sweep implements "t9k sweep", which runs a job once for each combination of the values of some parameters,
// and shows the results. All state is in the cluster's jobs, so the same command can continue a sweep. Start reading at
// start.
package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/manifest"
	"tensorstack.dev/batch/internal/observed"
)

type options struct {
	file, name string
	sets       []string
	// parallel is the largest number of unfinished jobs; 0 creates all jobs immediately.
	parallel  int
	keepGoing bool
	detach    bool
	dryRun    bool
	output    kit.Format
}

// Command returns the command "t9k sweep".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "sweep [SWEEP] | -f FILE --set NAME=VALUES...",
		Short: "Run a job for every combination of some parameters, and show the results",
		Long: `Create one job for each combination of the values of some parameters, watch them until they finish, and show a table of
their results. The exit code is 0 if all jobs have succeeded.

VALUES is a list such as 0.1,0.01 or a range of whole numbers such as 1-5. In the manifest, ${NAME} stands for the value.
Each container also gets the value as an environment variable of that name.

Without --parallel, the command creates all jobs at once, and a queue limits how many run. With --parallel, it creates
the next job when another one has finished. When a job fails, it creates no further jobs, unless you add --keep-going;
existing jobs continue. They also continue if the command is interrupted. The same command then continues the sweep: it
creates no job twice. With more values, it creates the missing jobs. To try a failed job again, delete it first.

With only the name of a sweep, the command shows its jobs; without a name, it lists the sweeps.`,
		Example: p.Example(
			"t9k sweep -f job.yaml --set lr=0.1,0.01 --set seed=1-5 --parallel 4",
			"t9k sweep mnist",
			"t9k get -l batch.tensorstack.dev/sweep=mnist",
			"t9k delete -l batch.tensorstack.dev/sweep=mnist"),
		Args: func(cmd *cobra.Command, args []string) error { return o.check(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.file != "":
				return start(cmd.Context(), p, &o)
			case len(args) == 1:
				return show(cmd.Context(), p, &o, args[0])
			}
			return list(cmd.Context(), p)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", `Manifest of the job in YAML or JSON, or its https address; "-" reads standard input`)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	f.StringArrayVar(&o.sets, "set", nil, "Parameter with its values: NAME=VALUE,VALUE or NAME=1-5. May be given several times")
	f.StringVar(&o.name, "name", "", "Name of the sweep; by default the name of the job in the manifest")
	f.IntVar(&o.parallel, "parallel", 0, "Largest number of unfinished jobs at a time; 0 creates all jobs immediately")
	f.BoolVar(&o.keepGoing, "keep-going", false, "Create further jobs after a job has failed")
	f.BoolVarP(&o.detach, "detach", "d", false, "Create all jobs and return")
	f.BoolVar(&o.dryRun, "dry-run", false, "Print the manifests of the jobs and change nothing")
	kit.AddOutputFlag(cmd, &o.output, kit.Name, kit.JSON, kit.YAML)
	return cmd
}

// check returns an error if flags cannot be combined with each other or with the name of a sweep.
func (o *options) check(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("sweep shows one sweep, not %d", len(args))
	}
	if o.file == "" {
		return o.checkShown(cmd, args)
	}
	switch {
	case len(args) > 0:
		return fmt.Errorf("-f starts a sweep and %q names one: leave one of them out, or write --name %s", args[0], args[0])
	case o.parallel < 0:
		return fmt.Errorf("--parallel %d: write a number from 1, or leave it out to create all jobs at once", o.parallel)
	case o.parallel > 0 && o.detach:
		return errors.New("--parallel creates jobs when others end, and --detach does not wait for that: leave one of them out")
	case o.output == kit.Name && o.dryRun:
		return errors.New("--dry-run prints manifests: -o takes yaml or json with it")
	case o.output != "" && !o.dryRun && !o.detach:
		return errors.New("-o prints the jobs and needs --detach or --dry-run")
	}
	return nil
}

// checkShown returns an error if the command line has flags that apply only to a new sweep, or if it has -o without the
// name of a sweep.
func (o *options) checkShown(cmd *cobra.Command, args []string) error {
	for _, flag := range []string{"set", "name", "parallel", "keep-going", "detach", "dry-run"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s applies only to a new sweep: give its manifest with -f", flag)
		}
	}
	if o.output != "" && len(args) == 0 {
		return errors.New("-o prints the jobs of a sweep: name one")
	}
	return nil
}

// start starts or continues a sweep. With --dry-run, it only prints the manifests of the jobs.
func start(ctx context.Context, p *kit.Program, o *options) error {
	if o.dryRun {
		_, sweep, err := o.read(ctx, p)
		if err != nil {
			return err
		}
		return p.PrintEach(cmp.Or(o.output, kit.YAML), sweep.objects())
	}
	// The errors of a manifest are reported even if there is no cluster. Connect selects the kubeconfig, so it must run
	// before the namespace of the manifest is determined.
	c, noCluster := p.Connect()
	t, sweep, err := o.read(ctx, p)
	switch {
	case err != nil:
		return err
	case noCluster != nil:
		return noCluster
	}
	for _, m := range sweep.members {
		if err := c.Place(m.object, manifest.NameOf(m.object), true); err != nil {
			return err
		}
	}
	d := newDriver(p, c, o, sweep)
	if err := d.prepare(ctx, t.digest); err != nil {
		return err
	}
	return d.run(ctx)
}

// read returns the sweep that the command line describes.
func (o *options) read(ctx context.Context, p *kit.Program) (*template, *plan, error) {
	parameters, err := parseParameters(o.sets)
	if err != nil {
		return nil, nil, err
	}
	checker := &manifest.Checker{Namespace: p.OfflineNamespace(), Limits: observed.AsInstalled}
	t, err := readTemplate(p.Open, checker, o.file, o.name)
	if err != nil {
		return nil, nil, err
	}
	sweep, err := t.expand(ctx, parameters)
	if err != nil {
		return nil, nil, fmt.Errorf("%w\nNothing was created", err)
	}
	return t, sweep, nil
}

// objects returns the manifests of the jobs.
func (s *plan) objects() iter.Seq2[*unstructured.Unstructured, error] {
	return func(yield func(*unstructured.Unstructured, error) bool) {
		for _, m := range s.members {
			if !yield(m.object, nil) {
				return
			}
		}
	}
}
