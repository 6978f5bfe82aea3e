// Package run implements "t9k run", which applies a manifest and watches its jobs until they finish.
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/progress"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/manifest"
	"tensorstack.dev/batch/internal/observed"
)

type options struct {
	files []string
	// job describes a job without a manifest.
	job    composer
	dryRun bool
	detach bool
	// replace first deletes existing jobs with the same names.
	replace bool
	// failIfImpossible stops the watch if a job can never start.
	failIfImpossible bool
	logs             progress.Logs
	output           kit.Format
}

// Command returns the command "t9k run".
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:        "run FILE... | --name NAME --image IMAGE [-- COMMAND...]",
		SuggestFor: []string{"submit", "apply", "create", "start"},
		Short:      "Run the jobs of a manifest, or a command in an image, and watch them until they finish",
		Long: `Check manifests, apply them and show their jobs until they finish. The exit code is 0 if all jobs have succeeded.

The command applies other objects in the manifest, such as ConfigMaps, first. It uses server-side apply with the field
manager "t9k", so it applies changes of a manifest to live jobs, if the fields can change. If "validate" finds errors, the
command changes nothing. Each run creates a new job from a manifest with generateName.

FILE is a manifest in YAML or JSON, a directory of manifests, an address that begins with https://, or "-" for standard
input. A job that has finished never runs again: --replace first deletes existing jobs with the same names, with their
pods, and "rerun" runs a copy of a job.

Without a manifest, flags describe one job, whose replicas run the command after the double dash. --dry-run prints the
manifest of that job and changes nothing: you can save and extend it.

On a terminal, the command updates one view of the job, with the last lines of the output of its first replica below;
otherwise it prints a line for each transition, and the output between them. If one replica decides the result of the job,
that replica counts as the first. Ctrl-C stops the command, and the job continues. If the API server does not answer, the
command waits for it. If a job needs more than the whole quota of its queue, or more than all nodes have, the command
prints a warning; with --fail-if-impossible it exits.`,
		Example: p.Example("t9k run job.yaml", "t9k run -f job.yaml --detach", "t9k run experiments/ --replace", "cat job.yaml | t9k run -",
			"t9k run --name mnist --image pytorch/pytorch --kind pytorch --replicas 4 --gpus 2 -- python train.py",
			"t9k run --name mnist --image pytorch/pytorch --dry-run > job.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, o.job.take(cmd, args)...)
			if err := o.check(cmd.Flags().Changed("logs")); err != nil {
				return err
			}
			return run(cmd.Context(), p, &o)
		},
	}
	kit.AddFileFlag(cmd, &o.files)
	o.job.addFlags(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "Without a manifest: print the manifest of the job and change nothing")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "Delete existing jobs with the same names, with their pods, and create them again")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "Return when everything is applied")
	cmd.Flags().BoolVar(&o.failIfImpossible, "fail-if-impossible", false, "Exit with exit code 1 when the scheduler reports that a job can never start with the present quota and nodes; the job is kept")
	progress.AddLogsFlag(cmd, &o.logs)
	kit.AddOutputFlag(cmd, &o.output, kit.Name, kit.JSON, kit.YAML)
	return cmd
}

// check returns an error if the flags cannot be combined. If flags describe a job, it sets files to the composed
// manifest. logs is true if the command line has --logs.
func (o *options) check(logs bool) error {
	if o.job.used() {
		if err := o.job.check(o.files); err != nil {
			return err
		}
		o.files = []string{composed}
	}
	if o.dryRun {
		return o.checkDryRun(logs)
	}
	switch {
	case o.output != "" && !o.detach:
		return errors.New("-o prints the applied objects and needs --detach")
	case o.failIfImpossible && o.detach:
		return errors.New("--fail-if-impossible cannot be combined with --detach")
	case logs && o.detach:
		return errors.New("--logs cannot be combined with --detach: \"logs -f\" shows the output later")
	}
	return nil
}

// checkDryRun returns an error if --dry-run cannot be combined with the other flags.
func (o *options) checkDryRun(logs bool) error {
	switch {
	case !o.job.used():
		return errDryRun
	case o.detach || o.replace || o.failIfImpossible || logs:
		return errors.New("--dry-run changes nothing: leave out --detach, --replace, --fail-if-impossible and --logs")
	case o.output == kit.Name:
		return errors.New("--dry-run prints a manifest: -o takes yaml or json with it")
	}
	return nil
}

func run(ctx context.Context, p *kit.Program, o *options) error {
	if o.dryRun {
		checked, err := o.read(ctx, p)
		if err != nil {
			return err
		}
		return o.job.print(p, o.output, checked)
	}
	// The errors of a manifest are reported even if there is no cluster.
	c, noCluster := p.Connect()
	checked, err := o.read(ctx, p)
	switch {
	case err != nil:
		return err
	case noCluster != nil:
		return noCluster
	}
	ap := applier{Program: p, cluster: c, quiet: o.output != "", replace: o.replace}
	if err := ap.locate(checked.Results); err != nil {
		return err
	}
	jobs, err := ap.apply(ctx)
	if err != nil {
		return err
	}
	switch {
	case o.output == kit.Name:
		p.PrintNames(jobs...)
		return nil
	case o.output != "":
		return kit.PrintJobs(p.Out, o.output, jobs, len(jobs) == 1)
	case o.detach:
		return nil
	case len(jobs) == 0:
		fmt.Fprintln(p.ErrOut, "There is no job in the manifest to watch.")
		return nil
	}
	reportRuntime(ctx, p, c)
	reportFinished(p, c, jobs)
	return progress.Watch(ctx, p, c, jobs, progress.Options{FailIfImpossible: o.failIfImpossible, Logs: o.logs})
}

// read reads and checks the manifests, or the manifest that flags describe. If they have errors, it prints the errors
// and returns an error.
func (o *options) read(ctx context.Context, p *kit.Program) (*manifest.Checked, error) {
	open := manifest.Opener(p.Open)
	if o.job.used() {
		var err error
		if open, err = o.job.opener(); err != nil {
			return nil, err
		}
	}
	checker := manifest.Checker{Namespace: p.OfflineNamespace(), Limits: observed.AsInstalled}
	checked, err := checker.CheckFiles(ctx, open, o.files)
	if err != nil || len(checked.Errors) == 0 {
		return checked, err
	}
	for _, f := range checked.Errors {
		fmt.Fprintln(p.ErrOut, f)
	}
	return nil, errors.New("the manifest is not valid; nothing was applied")
}

// reportFinished prints why jobs that have finished do not run again.
func reportFinished(p *kit.Program, c *kit.Cluster, jobs []*kit.Job) {
	for _, j := range jobs {
		if finished, _ := observed.Finished(j.Status()); finished {
			fmt.Fprintf(p.ErrOut, "%s has ended and never runs again. To run it again, add --replace, or run a copy of it: %s\n",
				j.Ref(), p.Again(c, j.GetNamespace(), "rerun "+j.Ref()))
		}
	}
}

// reportRuntime prints that images are ignored if the cluster runs containers as plain processes.
func reportRuntime(ctx context.Context, p *kit.Program, c *kit.Cluster) {
	ctx, cancel := context.WithTimeout(ctx, kit.RequestTimeout)
	defer cancel()
	nodes, err := c.Core.Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) == 0 || !strings.HasPrefix(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion, "process://") {
		return
	}
	fmt.Fprintln(p.ErrOut, kit.StyleOf(p.ErrOut).Paint(view.Dim, "This cluster runs containers as processes of this machine: their images are ignored."))
}
