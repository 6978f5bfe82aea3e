// Package scale implements "t9k scale", which changes the number of replicas of an elastic job.
package scale

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
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// Command returns the command "t9k scale".
func Command(p *kit.Program) *cobra.Command {
	var o kit.Format
	cmd := &cobra.Command{
		Use:   "scale JOB N",
		Short: "Change the number of replicas of an elastic job",
		Long: `Change the number of replicas of an elastic job while it trains, between elastic.minReplicas and elastic.maxReplicas. The
operator removes the highest ranks of a role first, and the other replicas continue. After a replica has succeeded, the
size of the job is fixed.

The command returns when the API server has accepted the request; "get JOB --watch" shows the replicas.`,
		Example:           p.Example("t9k scale mnist 4"),
		Args:              needJobAndSize,
		ValidArgsFunction: completeScale(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseSize(args[1])
			if err != nil {
				return err
			}
			c, err := p.Connect()
			if err != nil {
				return err
			}
			return scale(cmd.Context(), p, c, args[0], n, o)
		},
	}
	kit.AddOutputFlag(cmd, &o, kit.Name, kit.JSON, kit.YAML)
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
		return 0, fmt.Errorf("%q is not a number of replicas: write one such as 4", s)
	}
	return int(n), nil
}

// scale changes the size of a job and prints the result. After a conflict, it finds the job again, because another job
// may then have its name.
func scale(ctx context.Context, p *kit.Program, c *kit.Cluster, address string, n int, o kit.Format) error {
	var before, after *kit.Job
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		if before, err = c.Find(ctx, address); err != nil {
			return err
		}
		if after, err = resized(before, n); err != nil {
			return err
		}
		if size, _, _ := unstructured.NestedInt64(before.Raw.Object, "spec", "elastic", "expectedReplicas"); size == int64(n) {
			return nil
		}
		return resize(ctx, c, before, n)
	})
	switch {
	case before == nil || after == nil:
		return err
	case err != nil:
		return fmt.Errorf("scaling %s to %d replicas: %w", before.Ref(), n, err)
	}
	switch o {
	case kit.JSON, kit.YAML:
		raw, err := c.Jobs(before.Kind, before.GetNamespace()).Get(ctx, before.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("getting %s: %w", before.Ref(), err)
		}
		return kit.PrintObject(p.Out, o, raw)
	case kit.Name:
		p.PrintNames(before)
		return nil
	}
	return reportScaled(p, before, after)
}

// resize sets the size through the scale subresource, as kubectl and autoscalers do. It returns a conflict if the job
// has changed since it was read.
func resize(ctx context.Context, c *kit.Cluster, j *kit.Job, n int) error {
	err := c.Steer().Resize(ctx, j, n)
	if kit.NotServed(err) {
		return fmt.Errorf("the CustomResourceDefinition of %s in the cluster is older and has no scale: upgrade it", j.Kind.Plural)
	}
	return err
}

// scalable converts a job that can be scaled. For any other job, it returns an error that explains why.
func scalable(j *kit.Job) (*engine.Job, error) {
	if finished, _ := observed.Finished(j.Status()); finished {
		return nil, fmt.Errorf("%s has finished (%s): scaling it would have no effect", j.Ref(), j.Status().Phase)
	}
	normal, err := j.Normal()
	if err != nil {
		return nil, fmt.Errorf("%s has an invalid spec: %w", j.Ref(), err)
	}
	if normal.Elastic == nil {
		return nil, fmt.Errorf("%s is not elastic and keeps its %s: only a %s that was created with "+
			"elastic.enabled can be scaled", j.Ref(), view.Count(normal.Replicas(), "replica"), elasticKinds())
	}
	if j.Status().Aggregate.Succeeded > 0 && j.Status().RunMode != batch.RunDebug {
		return nil, fmt.Errorf("a replica of %s has succeeded, and from then on the job keeps its size: scaling it would "+
			"have no effect", j.Ref())
	}
	return normal, nil
}

// elasticKinds returns the names of the kinds whose jobs can be elastic.
func elasticKinds() string {
	var names []string
	for _, k := range kinds.All {
		if k.Elastic {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, " or ")
}

// resized returns the job with n replicas, or an error that explains why it cannot have that number of replicas.
func resized(j *kit.Job, n int) (*kit.Job, error) {
	normal, err := scalable(j)
	if err != nil {
		return nil, err
	}
	if e := normal.Elastic; n < e.Min || n > e.Max {
		return nil, fmt.Errorf("%s takes from %d to %d replicas, not %d; these bounds cannot change on a live job", j.Ref(), e.Min, e.Max, n)
	}
	raw := j.Raw.DeepCopy()
	if err := unstructured.SetNestedField(raw.Object, int64(n), "spec", "elastic", "expectedReplicas"); err != nil {
		return nil, fmt.Errorf("reading %s: %w", j.Ref(), err)
	}
	return observed.New(j.Kind, raw)
}

// reportScaled prints which replicas are added and which are removed.
func reportScaled(p *kit.Program, before, after *kit.Job) error {
	old, err := before.Normal()
	if err != nil {
		return err
	}
	now, err := after.Normal()
	if err != nil {
		return err
	}
	from, to := old.Replicas(), now.Replicas()
	if from == to {
		fmt.Fprintf(p.Out, "%s has %s already\n", after.Ref(), view.Count(to, "replica"))
		return nil
	}
	var parts []string
	if come := beyond(now, old); come != "" {
		parts = append(parts, "starting "+come)
	}
	if goAway := beyond(old, now); goAway != "" {
		parts = append(parts, "ending "+goAway)
	}
	fmt.Fprintf(p.Out, "%s is scaling from %d to %s, %s\n", after.Ref(), from, view.Count(to, "replica"), strings.Join(parts, ", "))
	if now.Pause {
		fmt.Fprintf(p.Out, "It is paused: \"%s resume %s\" starts its pods.\n", p.Name, after.GetName())
	}
	return nil
}

// beyond names the replicas that job has and other, which has the same roles, lacks. It returns an empty text if there
// are none.
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

// sizesOffered is the largest number of sizes that completion offers.
const sizesOffered = 100

// completeScale returns a completion of the names of elastic jobs, and then of the sizes that the job accepts.
func completeScale(p *kit.Program) kit.Completion {
	jobs := p.CompleteJobsThat(1, func(j *kit.Job) bool {
		_, err := scalable(j)
		return err == nil
	})
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return jobs(cmd, args, prefix)
		}
		sizes, directive := p.Complete(cmd.Context(), func(ctx context.Context, c *kit.Cluster) ([]string, error) {
			j, err := c.Find(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return sizesOf(j)
		})
		return sizes, directive | cobra.ShellCompDirectiveKeepOrder
	}
}

// sizesOf returns the sizes that a job accepts; none if there are more than sizesOffered.
func sizesOf(j *kit.Job) ([]string, error) {
	normal, err := scalable(j)
	if err != nil || normal.Elastic.Max-normal.Elastic.Min >= sizesOffered {
		return nil, err
	}
	var sizes []string
	for n := normal.Elastic.Min; n <= normal.Elastic.Max; n++ {
		size := strconv.Itoa(n)
		if n == normal.Replicas() {
			size = cobra.CompletionWithDesc(size, "now")
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}
