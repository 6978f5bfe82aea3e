// Package describe implements "t9k describe", which shows all details of jobs.
package describe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/cli/waiting"
	"tensorstack.dev/batch/internal/observed"
)

// Command returns the command "t9k describe".
func Command(p *kit.Program) *cobra.Command {
	var o kit.Format
	cmd := &cobra.Command{
		Use:   "describe JOB...",
		Short: "Show jobs in detail: conditions, roles, replicas, events",
		Long: `Show the state of jobs and its reason, their conditions, roles and replicas, and the events about the jobs and about their
pods that do not run.`,
		Example:           p.Example("t9k describe mnist"),
		Args:              kit.NeedJobs,
		ValidArgsFunction: p.CompleteJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, jobs, err := p.FindAll(cmd.Context(), args)
			if err != nil {
				return err
			}
			if o != "" {
				return kit.PrintJobs(p.Out, o, jobs, len(args) == 1)
			}
			for i, j := range jobs {
				if i > 0 {
					fmt.Fprint(p.Out, "\n\n")
				}
				if err := describe(cmd.Context(), p, c, j); err != nil {
					return err
				}
			}
			return nil
		},
	}
	kit.AddOutputFlag(cmd, &o, kit.JSON, kit.YAML)
	return cmd
}

// troubledShown is the largest number of pods whose events a description shows.
const troubledShown = 3

func describe(ctx context.Context, p *kit.Program, c *kit.Cluster, j *kit.Job) error {
	d := view.Description{Job: kit.View(j), Meta: j}
	var err error
	if d.Normal, err = j.Normal(); err != nil {
		d.Invalid = err.Error()
	}
	if d.Normal != nil && d.Normal.Gang != nil {
		// The error is ignored: a user may not be allowed to list other waiting groups, and the job's status gives the
		// reason.
		d.Place, _ = waiting.Place(ctx, c, j, d.Normal.Gang.Queue)
	}
	d.TensorBoard = observed.Board(j)
	// A user with the right to read jobs can lack the right to read pods or events. The verb then shows the rest.
	var ages, events error
	d.Ages, ages = c.Ages(ctx, j)
	d.Events, events = eventsOfAll(ctx, c, j)
	if err := errors.Join(ages, events); err != nil {
		fmt.Fprintf(p.ErrOut, "Not shown: %v\n", err)
	}
	return kit.PrintLines(p.Out, d.Lines(time.Now(), kit.StyleOf(p.Out), kit.TerminalOf(p.Out).Width()))
}

// eventsOfAll returns the events about a job and about at most troubledShown of its troubled pods, the oldest first.
func eventsOfAll(ctx context.Context, c *kit.Cluster, j *kit.Job) ([]corev1.Event, error) {
	all, err := c.Events(ctx, j.GetNamespace(), j.GetName(), j.GetUID())
	if err != nil {
		return nil, err
	}
	for _, pod := range view.Troubled(j.Status(), troubledShown) {
		events, err := c.Events(ctx, j.GetNamespace(), pod, "")
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return observed.EventTime(&a).Compare(observed.EventTime(&b)) })
	return all, nil
}
