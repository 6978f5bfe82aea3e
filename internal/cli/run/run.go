// Package run is "t9k run", which applies a manifest and watches its jobs until they end.
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/manifest"
	"tensorstack.dev/batch/internal/cli/progress"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/observed"
)

type options struct {
	files  []string
	detach bool
	// replace deletes existing jobs of the same names first.
	replace bool
	// failIfImpossible ends the watch if a job can never start.
	failIfImpossible bool
	logs             progress.Logs
	output           kit.Format
}

// Command returns the verb.
func Command(p *kit.Program) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Apply a manifest and follow its jobs to their end",
		Long: `Check manifests, apply them and show their jobs until they end. The exit code is 0 if all jobs have succeeded.

The command applies other objects in the manifest, such as ConfigMaps, first. It uses server-side apply with the field
manager "t9k", so it applies changes of a manifest to live jobs, if the fields can change. If "validate" finds a fault, the
command changes nothing. Each run creates a new job from a manifest with generateName.

FILE is a manifest in YAML or JSON, a directory of manifests, an address that begins with https://, or "-" for standard
input. A job that has ended never runs again: --replace deletes the jobs of these names first, with their pods, and
"rerun" runs a copy of a job.

On a terminal, the command updates one view of the job, with the last lines of the output of its first replica below;
elsewhere it prints a line for each transition, and the output between them. If a job has a replica that decides how it
ends, that replica counts as the first. Ctrl-C stops the command, and the job continues. If the API server does not answer, the command waits for it. If a job needs more than
the whole quota of its queue or than all nodes have, the command prints a warning; with --fail-if-impossible it exits.`,
		Example: p.Example("t9k run job.yaml", "t9k run -f job.yaml --detach", "t9k run experiments/ --replace", "cat job.yaml | t9k run -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			if o.output != "" && !o.detach {
				return errors.New("-o prints the applied objects and needs --detach")
			}
			if o.failIfImpossible && o.detach {
				return errors.New("--fail-if-impossible cannot be combined with --detach")
			}
			if cmd.Flags().Changed("logs") && o.detach {
				return errors.New("--logs cannot be combined with --detach: \"logs -f\" shows the output later")
			}
			return run(cmd.Context(), p, &o)
		},
	}
	kit.AddFileFlag(cmd, &o.files)
	cmd.Flags().BoolVar(&o.replace, "replace", false, "Delete existing jobs of the same names, with their pods, and create them again")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "Return when everything is applied")
	cmd.Flags().BoolVar(&o.failIfImpossible, "fail-if-impossible", false, "Exit with exit code 1 when the scheduler reports that a job can never start with the present quota and nodes; the job stays")
	progress.AddLogsFlag(cmd, &o.logs)
	kit.AddOutputFlag(cmd, &o.output, kit.Name, kit.JSON, kit.YAML)
	return cmd
}

func run(ctx context.Context, p *kit.Program, o *options) error {
	// The faults of a manifest are reported even if there is no cluster.
	c, noCluster := p.Connect()
	checker := manifest.Checker{Namespace: p.OfflineNamespace(), Limits: observed.AsInstalled}
	checked, err := checker.CheckFiles(ctx, p.Open, o.files)
	if err != nil {
		return err
	}
	if len(checked.Faults) > 0 {
		for _, f := range checked.Faults {
			fmt.Fprintln(p.ErrOut, f)
		}
		return errors.New("the manifest is not valid; nothing was applied")
	}
	if noCluster != nil {
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
		fmt.Fprintln(p.ErrOut, "There is no job in the manifest to follow.")
		return nil
	}
	reportRuntime(ctx, p, c)
	reportFinished(p, c, jobs)
	return progress.Watch(ctx, p, c, jobs, progress.Options{FailIfImpossible: o.failIfImpossible, Logs: o.logs})
}

// reportFinished prints why jobs that have ended do not run again.
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
