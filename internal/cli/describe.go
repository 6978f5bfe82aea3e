package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"tensorstack.dev/batch/internal/cli/view"
)

func (a *app) describeCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "describe JOB...",
		Short: "Show all about jobs: conditions, roles, replicas, events",
		Long: `Show all that is known about jobs: why they are where they are, their conditions, roles and replicas, and the events about
them and about those of their pods that do not run.`,
		Example:           a.example("t9k describe mnist"),
		Args:              needJobs,
		ValidArgsFunction: a.completeJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			jobs, err := c.findAll(cmd.Context(), args)
			if err != nil {
				return err
			}
			if o != "" {
				return a.printJobs(&getOptions{output: o}, jobs, len(args) == 1, c.namespace)
			}
			for i, j := range jobs {
				if i > 0 {
					fmt.Fprint(a.Out, "\n\n")
				}
				if err := a.describe(cmd.Context(), c, j); err != nil {
					return err
				}
			}
			return nil
		},
	}
	addOutputFlag(cmd, &o, outputJSON, outputYAML)
	return cmd
}

// troubledShown is the number of pods whose events a description shows.
const troubledShown = 3

func (a *app) describe(ctx context.Context, c *cluster, j *job) error {
	d := view.Description{Job: j.view(), Meta: j}
	normal, err := j.lowered()
	if err != nil {
		d.Invalid = err.Error()
	} else {
		d.Normal = normal
	}
	if d.Ages, err = c.ages(ctx, j); err != nil {
		return err
	}
	if d.Events, err = c.events(ctx, j.GetNamespace(), j.GetName(), j.GetUID()); err != nil {
		return err
	}
	for _, pod := range view.Troubled(j.status(), troubledShown) {
		events, err := c.events(ctx, j.GetNamespace(), pod, "")
		if err != nil {
			return err
		}
		d.Events = append(d.Events, events...)
	}
	slices.SortStableFunc(d.Events, func(a, b corev1.Event) int { return view.EventTime(&a).Compare(view.EventTime(&b)) })
	return printLines(a.Out, d.Lines(time.Now(), styleOf(a.Out)))
}

// ages tells when the pods of a job were created.
func (c *cluster) ages(ctx context.Context, j *job) (view.Ages, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	pods, err := client.Resource(podResource).Namespace(j.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: j.selector()})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	ages := view.Ages{}
	for i := range pods.Items {
		ages[string(pods.Items[i].UID)] = pods.Items[i].CreationTimestamp.Time
	}
	return ages, nil
}
