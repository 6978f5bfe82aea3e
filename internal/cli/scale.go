package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
)

func (a *app) scaleCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "scale JOB N",
		Short: "Change the number of replicas of an elastic job",
		Long: `Change the number of replicas of an elastic job while it trains, within its bounds elastic.minReplicas and maxReplicas.
Replicas that stay go on undisturbed; of those that go, the highest ranks of a role go first. Once a replica has succeeded, the
job keeps its size.

The command returns when the cluster has taken the request; "get JOB --watch" shows the replicas come and go.`,
		Example:           a.example("t9k scale mnist 4"),
		Args:              needJobAndSize,
		ValidArgsFunction: a.completeScale,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseSize(args[1])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.scale(cmd.Context(), c, args[0], n, o)
		},
	}
	addOutputFlag(cmd, &o, outputName, outputJSON, outputYAML)
	return cmd
}

func needJobAndSize(_ *cobra.Command, args []string) error {
	if len(args) != 2 {
		return errors.New("name a job and its new number of replicas: scale JOB N")
	}
	return nil
}

func parseSize(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no number of replicas: write one such as 4", s)
	}
	return int(n), nil
}

// scale gives a job another size. Another write in between makes it look again: the job may be another one by then.
func (a *app) scale(ctx context.Context, c *cluster, address string, n int, o output) error {
	var before, after *job
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		if before, err = c.find(ctx, address); err != nil {
			return err
		}
		if after, err = before.resized(n); err != nil {
			return err
		}
		if size, _, _ := unstructured.NestedInt64(before.raw.Object, "spec", "elastic", "expectedReplicas"); size == int64(n) {
			return nil
		}
		return c.resize(ctx, before, n)
	})
	switch {
	case before == nil || after == nil:
		return err
	case err != nil:
		return fmt.Errorf("scaling %s to %d replicas: %w", before.ref(), n, err)
	}
	switch o {
	case outputJSON, outputYAML:
		raw, err := c.jobs(before.kind, before.GetNamespace()).Get(ctx, before.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("getting %s: %w", before.ref(), err)
		}
		return printObject(a.Out, o, raw)
	case outputName:
		fmt.Fprintln(a.Out, before.ref())
		return nil
	}
	return a.tellScaled(before, after)
}

// resize writes the size by way of the job's scale, as kubectl and autoscalers do. It is refused if the job has changed since
// it was read.
func (c *cluster) resize(ctx context.Context, j *job, n int) error {
	scale := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1",
		"kind":       "Scale",
		"metadata": map[string]any{
			"name": j.GetName(), "namespace": j.GetNamespace(), "resourceVersion": j.GetResourceVersion(),
		},
		"spec": map[string]any{"replicas": int64(n)},
	}}
	_, err := c.jobs(j.kind, j.GetNamespace()).Update(ctx, scale, metav1.UpdateOptions{FieldManager: fieldManager}, "scale")
	if notServed(err) {
		return fmt.Errorf("the cluster's definition of %s cannot scale, so it is an older one: install the present one", j.kind.Plural)
	}
	return err
}

// scalable is the normal form of a job that can be given another size, or says why it cannot.
func (j *job) scalable() (*engine.Job, error) {
	if finished, _ := view.Finished(j.status()); finished {
		return nil, fmt.Errorf("%s has finished (%s): another number of replicas would change nothing", j.ref(), j.status().Phase)
	}
	normal, err := j.lowered()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be carried out as it is: %w", j.ref(), err)
	}
	if normal.Elastic == nil {
		return nil, fmt.Errorf("%s is not elastic and keeps its %s: only a PyTorchTrainingJob that was created with "+
			"elastic.enabled can be scaled", j.ref(), view.Count(normal.Replicas(), "replica"))
	}
	if j.status().Aggregate.Succeeded > 0 && j.status().RunMode != batch.RunDebug {
		return nil, fmt.Errorf("a replica of %s has succeeded, and from then on the job keeps its size: another number of "+
			"replicas would change nothing", j.ref())
	}
	return normal, nil
}

// resized is the job as it would be with n replicas, or says why it cannot be given that many.
func (j *job) resized(n int) (*job, error) {
	normal, err := j.scalable()
	if err != nil {
		return nil, err
	}
	if e := normal.Elastic; n < e.Min || n > e.Max {
		return nil, fmt.Errorf("%s takes from %d to %d replicas, not %d; these bounds cannot change on a live job", j.ref(), e.Min, e.Max, n)
	}
	raw := j.raw.DeepCopy()
	if err := unstructured.SetNestedField(raw.Object, int64(n), "spec", "elastic", "expectedReplicas"); err != nil {
		return nil, fmt.Errorf("reading %s: %w", j.ref(), err)
	}
	return newJob(j.kind, raw)
}

// tellScaled says which replicas come and which go.
func (a *app) tellScaled(before, after *job) error {
	old, err := before.lowered()
	if err != nil {
		return err
	}
	now, err := after.lowered()
	if err != nil {
		return err
	}
	from, to := old.Replicas(), now.Replicas()
	if from == to {
		fmt.Fprintf(a.Out, "%s has %s already\n", after.ref(), view.Count(to, "replica"))
		return nil
	}
	var parts []string
	if come := beyond(now, old); come != "" {
		parts = append(parts, "starting "+come)
	}
	if goAway := beyond(old, now); goAway != "" {
		parts = append(parts, "ending "+goAway)
	}
	fmt.Fprintf(a.Out, "%s is scaling from %d to %s, %s\n", after.ref(), from, view.Count(to, "replica"), strings.Join(parts, ", "))
	if now.Pause {
		fmt.Fprintf(a.Out, "It is paused: \"%s resume %s\" starts its pods.\n", a.name, after.GetName())
	}
	return nil
}

// beyond names the replicas that a job has and another one of the same roles has not; empty where there are none.
func beyond(job, other *engine.Job) string {
	var parts []string
	for i := range job.Roles {
		var ranks []int
		for rank := other.Roles[i].Replicas; rank < job.Roles[i].Replicas; rank++ {
			ranks = append(ranks, rank)
		}
		if len(ranks) > 0 {
			parts = append(parts, view.Several(job.Roles[i].Type, ranks))
		}
	}
	return strings.Join(parts, " and ")
}

// sizesOffered is the largest number of sizes that are worth a choice.
const sizesOffered = 100

// completeScale completes the name of an elastic job, and then the sizes that it takes.
func (a *app) completeScale(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeJobsThat(1, func(j *job) bool {
			_, err := j.scalable()
			return err == nil
		})(cmd, args, prefix)
	}
	c, ctx, cancel := a.connectQuietly(cmd.Context())
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	j, err := c.find(ctx, args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	normal, err := j.scalable()
	if err != nil || normal.Elastic.Max-normal.Elastic.Min >= sizesOffered {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var sizes []string
	for n := normal.Elastic.Min; n <= normal.Elastic.Max; n++ {
		size := strconv.Itoa(n)
		if n == normal.Replicas() {
			size = cobra.CompletionWithDesc(size, "now")
		}
		sizes = append(sizes, size)
	}
	return sizes, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
