package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/nearest"
)

// job is a job of some kind as the cluster holds it.
type job struct {
	kind *kinds.Kind
	raw  *unstructured.Unstructured
	kinds.Object
}

// newJob reads an object of a kind.
func newJob(kind *kinds.Kind, raw *unstructured.Unstructured) (*job, error) {
	typed := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, typed); err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref(kind, raw.GetName()), err)
	}
	return &job{kind: kind, raw: raw, Object: typed}, nil
}

// ref addresses a job unmistakably.
func ref(kind *kinds.Kind, name string) string { return strings.ToLower(kind.Name) + "/" + name }

func (j *job) ref() string              { return ref(j.kind, j.GetName()) }
func (j *job) status() *batch.JobStatus { return j.kind.Status(j.Object) }

// asInstalled leaves it to the cluster how large a job may be: an operator may have other limits than the usual ones.
var asInstalled = kinds.Limits{MaxReplicas: math.MaxInt32}

// lowered is the job's normal form, if there is nothing wrong with the job.
func (j *job) lowered() (*engine.Job, error) {
	if faults := j.kind.Validate(j.Object, asInstalled); len(faults) > 0 {
		return nil, faults.ToAggregate()
	}
	return j.kind.Convert(j.Object), nil
}

func (j *job) view() view.Job {
	queue, _, _ := unstructured.NestedString(j.raw.Object, "spec", "scheduler", "t9kScheduler", "queue")
	return view.Job{
		Kind: j.kind.Name, Ref: j.ref(), Namespace: j.GetNamespace(), Name: j.GetName(),
		Queue: queue, Created: j.GetCreationTimestamp().Time, Status: j.status(),
	}
}

// selector finds the pods of a job.
func (j *job) selector() string {
	return fmt.Sprintf("%s=%s,%s=%s", batch.LabelJobName, j.GetName(), batch.LabelJobKind, j.kind.Name)
}

// parseAddress reads NAME or KIND/NAME. The kind is nil where none is given.
func parseAddress(address string) (*kinds.Kind, string, error) {
	kindName, name, qualified := strings.Cut(address, "/")
	if !qualified {
		return nil, address, nil
	}
	if name == "" || strings.Contains(name, "/") {
		return nil, "", fmt.Errorf("%q addresses no job: write NAME or KIND/NAME", address)
	}
	var known []string
	for i := range kinds.All {
		k := &kinds.All[i]
		for _, alias := range []string{k.Name, k.Plural, k.ShortName, k.Plural + "." + batch.GroupVersion.Group} {
			if strings.EqualFold(alias, kindName) {
				return k, name, nil
			}
		}
		known = append(known, strings.ToLower(k.Name))
	}
	return nil, "", fmt.Errorf("%q is no kind of job; there are: %s", kindName, strings.Join(known, ", "))
}

// errNotInstalled says that the cluster serves no kind of job.
var errNotInstalled = errors.New("the kinds of job are not installed in this cluster")

// needJobs demands at least one job on the command line.
func needJobs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name a job; \"get\" lists those that there are")
	}
	return nil
}

// needJob demands exactly one.
func needJob(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s takes one job, not %d", cmd.Name(), len(args))
	}
	return needJobs(cmd, args)
}

// notServed tells the absence of a kind from the absence of an object: only the latter gets an answer from the API itself.
func notServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// find gets the job that an address means. Without a kind, all kinds are searched.
func (c *cluster) find(ctx context.Context, address string) (*job, error) {
	kind, name, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	candidates := kinds.All
	if kind != nil {
		candidates = []kinds.Kind{*kind}
	}
	found, hidden, err := c.called(ctx, candidates, name)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var refs []string
		for _, j := range found {
			refs = append(refs, j.ref())
		}
		return nil, fmt.Errorf("several jobs are called %q; say which: %s", name, strings.Join(refs, ", "))
	case len(hidden) == len(candidates):
		return nil, fmt.Errorf("getting %s: %w", address, errors.Join(hidden...))
	case len(hidden) > 0:
		return nil, fmt.Errorf("%w, of the kinds that you may get. Not looked at: %w", c.notFound(ctx, candidates, name), errors.Join(hidden...))
	}
	return nil, c.notFound(ctx, candidates, name)
}

// called gets the jobs of some kinds that have a name; hidden is what the user may not get.
func (c *cluster) called(ctx context.Context, of []kinds.Kind, name string) (found []*job, hidden []error, err error) {
	served := false
	for i := range of {
		raw, err := c.jobs(&of[i], c.namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case notServed(err):
			continue
		case apierrors.IsForbidden(err):
			hidden = append(hidden, err)
		case err == nil:
			j, err := newJob(&of[i], raw)
			if err != nil {
				return nil, nil, err
			}
			found = append(found, j)
		case !apierrors.IsNotFound(err):
			return nil, nil, fmt.Errorf("getting %s: %w", ref(&of[i], name), err)
		}
		served = true
	}
	if !served {
		return nil, nil, errNotInstalled
	}
	return found, hidden, nil
}

// notFound names the jobs that were perhaps meant.
func (c *cluster) notFound(ctx context.Context, candidates []kinds.Kind, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var names []string
	if jobs, _, err := c.list(ctx, candidates, c.namespace); err == nil {
		for _, j := range jobs {
			names = append(names, j.GetName())
		}
	}
	err := fmt.Errorf("no job %q in namespace %q", name, c.namespace)
	if near := nearest.Names(name, names, 3); len(near) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, ", "))
	}
	if len(names) == 0 {
		return fmt.Errorf("%w, nor any other", err)
	}
	return err
}

// list gets the jobs of some kinds in a namespace; an empty one stands for all. What the user may not list is hidden; it is
// an error only where nothing is left.
func (c *cluster) list(ctx context.Context, of []kinds.Kind, namespace string) (jobs []*job, hidden []error, err error) {
	served := 0
	for i := range of {
		list, err := c.jobs(&of[i], namespace).List(ctx, metav1.ListOptions{})
		if notServed(err) {
			continue
		}
		served++
		if apierrors.IsForbidden(err) {
			hidden = append(hidden, err)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("listing %s: %w", of[i].Plural, err)
		}
		for k := range list.Items {
			j, err := newJob(&of[i], &list.Items[k])
			if err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, j)
		}
	}
	switch {
	case served == 0:
		return nil, nil, errNotInstalled
	case len(hidden) == served:
		return nil, nil, fmt.Errorf("listing jobs: %w", errors.Join(hidden...))
	}
	return jobs, hidden, nil
}
