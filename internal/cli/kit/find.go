package kit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/nearest"
	"tensorstack.dev/batch/internal/observed"
)

// ParseAddress parses NAME or KIND/NAME and returns the kind and the name. For NAME, the kind is nil.
func ParseAddress(address string) (*kinds.Kind, string, error) {
	kindName, name, qualified := strings.Cut(address, "/")
	if !qualified {
		return nil, address, nil
	}
	if name == "" || strings.Contains(name, "/") {
		return nil, "", fmt.Errorf("%q is not the name of a job: write NAME or KIND/NAME", address)
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
	return nil, "", fmt.Errorf("%q is not a kind of job; the kinds are: %s", kindName, strings.Join(known, ", "))
}

// ErrNotInstalled means that the cluster does not serve any kind of job.
var ErrNotInstalled = errors.New("the kinds of job are not installed in this cluster")

// NeedJobs returns an error unless the command line names at least one job.
func NeedJobs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name a job; \"get\" lists the jobs")
	}
	return nil
}

// NeedJob returns an error unless the command line names exactly one job.
func NeedJob(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s takes one job, not %d", cmd.Name(), len(args))
	}
	return NeedJobs(cmd, args)
}

// NotServed reports whether an error means that the cluster does not serve a kind. It returns false for the error about
// a missing object of a served kind.
func NotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Find returns the job with an address in the default namespace. If the address does not name a kind, Find searches all
// kinds, and returns an error if several jobs have the name.
func (c *Cluster) Find(ctx context.Context, address string) (*Job, error) {
	kind, name, err := ParseAddress(address)
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
			refs = append(refs, j.Ref())
		}
		return nil, fmt.Errorf("several jobs are called %q; write one of: %s", name, strings.Join(refs, ", "))
	case len(hidden) == len(candidates):
		return nil, fmt.Errorf("getting %s: %w", address, errors.Join(hidden...))
	case len(hidden) > 0:
		return nil, fmt.Errorf("%w, of the kinds that you may get. Not listed: %w", c.notFound(ctx, candidates, name), errors.Join(hidden...))
	}
	return nil, c.notFound(ctx, candidates, name)
}

// called returns the jobs of some kinds that have the given name. hidden holds the errors of kinds that the user may
// not get. called returns ErrNotInstalled if the cluster serves none of the kinds.
func (c *Cluster) called(ctx context.Context, of []kinds.Kind, name string) (found []*Job, hidden []error, err error) {
	served := false
	for i := range of {
		raw, err := c.Jobs(&of[i], c.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case NotServed(err):
			continue
		case apierrors.IsForbidden(err):
			hidden = append(hidden, err)
		case err == nil:
			j, err := observed.New(&of[i], raw)
			if err != nil {
				return nil, nil, err
			}
			found = append(found, j)
		case !apierrors.IsNotFound(err):
			return nil, nil, fmt.Errorf("getting %s: %w", observed.Ref(&of[i], name), err)
		}
		served = true
	}
	if !served {
		return nil, nil, ErrNotInstalled
	}
	return found, hidden, nil
}

// notFound returns an error that suggests jobs with similar names.
func (c *Cluster) notFound(ctx context.Context, candidates []kinds.Kind, name string) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	var names []string
	if jobs, _, err := c.List(ctx, candidates, c.Namespace, ""); err == nil {
		for _, j := range jobs {
			names = append(names, j.GetName())
		}
	}
	err := fmt.Errorf("no job %q in namespace %q", name, c.Namespace)
	if near := nearest.Names(name, names, 3); len(near) > 0 {
		return fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, ", "))
	}
	if len(names) == 0 {
		return fmt.Errorf("%w, nor any other", err)
	}
	return err
}

// List returns the jobs of some kinds that match a label selector. An empty namespace selects all namespaces, and an
// empty selector selects all jobs. hidden holds the errors of kinds that the user may not list. List returns
// ErrNotInstalled if the cluster serves none of the kinds, and an error if the user may not list any of them or if a
// request fails for another reason.
func (c *Cluster) List(ctx context.Context, of []kinds.Kind, namespace, labels string) (jobs []*Job, hidden []error, err error) {
	served := 0
	for i := range of {
		list, err := c.Jobs(&of[i], namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
		if NotServed(err) {
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
			j, err := observed.New(&of[i], &list.Items[k])
			if err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, j)
		}
	}
	switch {
	case served == 0:
		return nil, nil, ErrNotInstalled
	case len(hidden) == served:
		return nil, nil, fmt.Errorf("listing jobs: %w", errors.Join(hidden...))
	}
	return jobs, hidden, nil
}

// FindAll returns all named jobs, or an error if one cannot be found.
func (c *Cluster) FindAll(ctx context.Context, addresses []string) ([]*Job, error) {
	var jobs []*Job
	for _, address := range addresses {
		j, err := c.Find(ctx, address)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// Find connects to the cluster and returns the job with an address.
func (p *Program) Find(ctx context.Context, address string) (*Cluster, *Job, error) {
	c, err := p.Connect()
	if err != nil {
		return nil, nil, err
	}
	j, err := c.Find(ctx, address)
	return c, j, err
}

// FindAll connects to the cluster and returns all named jobs, or an error if one cannot be found.
func (p *Program) FindAll(ctx context.Context, addresses []string) (*Cluster, []*Job, error) {
	c, err := p.Connect()
	if err != nil {
		return nil, nil, err
	}
	jobs, err := c.FindAll(ctx, addresses)
	return c, jobs, err
}
