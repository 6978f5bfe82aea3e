package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
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
	var err error
	if d.Normal, err = j.lowered(); err != nil {
		d.Invalid = err.Error()
	}
	if d.Normal != nil && d.Normal.Gang != nil {
		// Who else waits is not for everybody to read. The job's own status says what it waits for.
		d.Place, _ = c.place(ctx, j, d.Normal.Gang.Queue)
	}
	if j.kind.Training != nil {
		d.TensorBoard = boardOf(j)
	}
	// Whoever may read jobs may not read pods or events: what can be told is told.
	var ages, events error
	d.Ages, ages = c.ages(ctx, j)
	d.Events, events = c.eventsOfAll(ctx, j)
	if err := errors.Join(ages, events); err != nil {
		fmt.Fprintf(a.ErrOut, "Some of it is missing: %v\n", err)
	}
	return printLines(a.Out, d.Lines(time.Now(), styleOf(a.Out), terminalOf(a.Out).width()))
}

// boardOf tells how the TensorBoard of a training job is; nil where it asks for none.
func boardOf(j *job) *batch.DependentStatus {
	spec, status := j.kind.Training(j.Object)
	if spec.TensorBoardSpec != nil && status.TensorBoard == nil {
		return &batch.DependentStatus{Type: corev1.EventTypeNormal, Reason: tensorboard.ReasonStarting, Note: "It is not there yet."}
	}
	return status.TensorBoard
}

// eventsOfAll lists the events about a job and about its pods that are in trouble, the oldest first.
func (c *cluster) eventsOfAll(ctx context.Context, j *job) ([]corev1.Event, error) {
	all, err := c.events(ctx, j.GetNamespace(), j.GetName(), j.GetUID())
	if err != nil {
		return nil, err
	}
	for _, pod := range view.Troubled(j.status(), troubledShown) {
		events, err := c.events(ctx, j.GetNamespace(), pod, "")
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return view.EventTime(&a).Compare(view.EventTime(&b)) })
	return all, nil
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
