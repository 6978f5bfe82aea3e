package sweep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/cli/watch"
	"tensorstack.dev/batch/internal/observed"
)

// retryDelay is the delay before the driver tries again to create a job after a temporary error.
const retryDelay = 2 * time.Second

// driver creates the jobs of a sweep, as many at a time as its options allow, and shows them. All state that outlives
// the driver is in the cluster: a job exists or does not exist, under a name that is derived from its settings.
type driver struct {
	*kit.Program
	*plan
	cluster *kit.Cluster
	client  dynamic.ResourceInterface
	options *options
	byName  map[string]*member
	// terminal is nil if the output is not a terminal. screen is nil if there is no live view: without a terminal, with
	// --detach, and before run.
	screen   *view.Screen
	terminal *kit.Terminal
	style    view.Style
	// whole is true if all jobs fitted into the last live view.
	whole bool
	// lost is the last connection error while the API server does not answer; nil while it answers.
	lost error
	// retry fires at the end of a retryDelay; nil if there is no delay now.
	retry <-chan time.Time
}

func newDriver(p *kit.Program, c *kit.Cluster, o *options, sweep *plan) *driver {
	d := &driver{Program: p, plan: sweep, cluster: c, options: o, byName: map[string]*member{}, terminal: kit.TerminalOf(p.Out), style: kit.StyleOf(p.Out)}
	d.client = c.Jobs(sweep.kind, d.namespace())
	for _, m := range sweep.members {
		d.byName[m.object.GetName()] = m
	}
	return d
}

func (d *driver) namespace() string { return d.members[0].object.GetNamespace() }

// selector returns the label selector of the sweep.
func selector(sweep string) string { return batch.LabelSweep + "=" + sweep }

// prepare finds the existing jobs, verifies that they come from the same manifest, and verifies that the API server
// accepts the first missing job. It changes nothing.
func (d *driver) prepare(ctx context.Context, digest string) error {
	list, err := d.client.List(ctx, metav1.ListOptions{LabelSelector: selector(d.name)})
	switch {
	case kit.NotServed(err):
		return kit.ErrNotInstalled
	case err != nil:
		return fmt.Errorf("listing the jobs of sweep %s: %w", d.name, err)
	}
	for i := range list.Items {
		if had := list.Items[i].GetAnnotations()[batch.AnnotationSweepManifest]; had != digest {
			return fmt.Errorf("sweep %s already exists with a different manifest: choose another name with --name, or delete its jobs: %s",
				d.name, d.Again(d.cluster, d.namespace(), "delete -l "+selector(d.name)))
		}
		if err := d.take(&list.Items[i]); err != nil {
			return err
		}
	}
	next := d.next()
	if next == nil {
		return nil
	}
	_, err = d.client.Create(ctx, next.object, metav1.CreateOptions{FieldManager: kit.FieldManager, FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsAlreadyExists(err):
		return d.foreign(next)
	case err != nil:
		return fmt.Errorf("creating %s: %w\nNothing was created", observed.Ref(d.kind, next.object.GetName()), err)
	}
	return nil
}

func (d *driver) foreign(m *member) error {
	return fmt.Errorf("%s exists and does not belong to sweep %s: choose another name with --name", observed.Ref(d.kind, m.object.GetName()), d.name)
}

// take applies the state of a job. It ignores jobs that have the sweep's label but do not belong to the sweep, such as
// copies of its jobs.
func (d *driver) take(u *unstructured.Unstructured) error {
	m := d.byName[u.GetName()]
	if m == nil {
		return nil
	}
	j, err := observed.New(d.kind, u)
	if err != nil {
		return err
	}
	old := m.job
	m.job, m.deleted = j, false
	if old != nil && d.screen == nil {
		if t, changed := view.JobTransition(j.Ref(), old.Status(), j.Status()); changed {
			d.report(t.Who, t.What, t.Colour)
		}
	}
	return nil
}

// next returns the next job to create; nil if all have been created.
func (d *driver) next() *member {
	for _, m := range d.members {
		if m.job == nil && !m.deleted {
			return m
		}
	}
	return nil
}

// tally counts the existing jobs that have not finished, and the jobs that have failed or were deleted.
func (d *driver) tally() (unfinished, failed int) {
	for _, m := range d.members {
		switch {
		case m.deleted:
			failed++
		case m.job != nil:
			finished, succeeded := observed.Finished(m.job.Status())
			if !finished {
				unfinished++
			} else if !succeeded {
				failed++
			}
		}
	}
	return unfinished, failed
}

// due returns the job that may be created now; nil if there is none.
func (d *driver) due() *member {
	unfinished, failed := d.tally()
	if failed > 0 && !d.options.keepGoing || d.options.parallel > 0 && unfinished >= d.options.parallel {
		return nil
	}
	return d.next()
}

// over reports whether all created jobs have finished and no further job may be created.
func (d *driver) over() bool {
	unfinished, _ := d.tally()
	return unfinished == 0 && d.due() == nil
}

// run creates the jobs and shows them until the sweep is over or ctx is done.
func (d *driver) run(ctx context.Context) error {
	if !d.options.detach {
		d.announce()
	}
	if d.terminal != nil && !d.options.detach {
		d.screen = view.NewScreen(d.Out)
	}
	var sources sync.WaitGroup
	defer sources.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	incoming := make(chan watch.Update[string])
	source := d.cluster.JobsSource(d.kind, d.namespace(), selector(d.name))
	if !d.options.detach {
		sources.Go(func() { watch.Send(watching, incoming, d.name, source) })
	}
	if err := d.loop(ctx, incoming); err != nil {
		return err
	}
	if d.options.detach && ctx.Err() == nil {
		return d.printCreated()
	}
	return d.conclude(ctx.Err() != nil)
}

// loop creates jobs and handles changes until the sweep is over. With --detach, it returns when no further job may be
// created now.
func (d *driver) loop(ctx context.Context, incoming <-chan watch.Update[string]) error {
	tick := time.NewTicker(time.Second) // to update the displayed ages
	defer tick.Stop()
	ready := make(chan struct{})
	close(ready)
	for ctx.Err() == nil && !d.over() {
		next := d.due()
		if next == nil && d.options.detach {
			return nil
		}
		var now <-chan struct{}
		if next != nil && d.retry == nil {
			now = ready
		} else if err := d.draw(); err != nil {
			return err
		}
		if err := d.step(ctx, incoming, now, tick.C, next); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return d.draw()
}

// step handles the first event that occurs: a change of the jobs, a tick, or the end of a retry delay. If now is not
// nil, the creation of the next job is such an event too.
func (d *driver) step(ctx context.Context, incoming <-chan watch.Update[string], now <-chan struct{}, tick <-chan time.Time, next *member) error {
	select {
	case <-ctx.Done():
		return nil
	case <-tick:
		return d.draw()
	case <-d.retry:
		d.retry = nil
		return nil
	case n := <-incoming:
		return d.takeUpdate(ctx, n)
	case <-now:
		return d.create(ctx, next)
	}
}

// create creates a job. After a temporary error, it sets retry. A job that already exists with the same manifest
// belongs to the sweep: it was created by an earlier request whose response was lost, or by another command for the
// same sweep.
func (d *driver) create(ctx context.Context, m *member) error {
	u, err := d.client.Create(ctx, m.object, metav1.CreateOptions{FieldManager: kit.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		u, err = d.client.Get(ctx, m.object.GetName(), metav1.GetOptions{})
		if err == nil && u.GetAnnotations()[batch.AnnotationSweepManifest] != m.object.GetAnnotations()[batch.AnnotationSweepManifest] {
			return d.foreign(m)
		}
	}
	switch {
	case err == nil:
		if d.screen == nil && !d.options.detach {
			d.report(observed.Ref(d.kind, u.GetName()), "created: "+m.settings.String(), view.Plain)
		}
		return d.take(u)
	case temporary(err) && ctx.Err() == nil:
		if d.lost == nil {
			d.report(observed.Ref(d.kind, m.object.GetName()), "cannot be created yet; trying again: "+kit.Cause(err), view.Wait)
		}
		d.retry = time.After(retryDelay)
		return nil
	}
	return fmt.Errorf("creating %s: %w\nThe jobs that exist continue. The same command continues the sweep", observed.Ref(d.kind, m.object.GetName()), err)
}

// temporary reports whether an error is temporary: the API server did not answer, or reported an overload or an
// internal error.
func temporary(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || status.Status().Code >= 500
}

// takeUpdate applies a change of the sweep's jobs.
func (d *driver) takeUpdate(ctx context.Context, n watch.Update[string]) error {
	if n.Err != nil {
		return fmt.Errorf("watching sweep %s: %w", d.name, n.Err)
	}
	switch n.Change.Type {
	case watch.Lost:
		d.lost = n.Change.Err
		d.report("sweep "+d.name, "the API server does not answer; trying again: "+kit.Cause(d.lost), view.Wait)
		return nil
	case watch.Back:
		d.lost = nil
		d.report("sweep "+d.name, "the API server answers again", view.Plain)
		return nil
	}
	present := map[string]bool{}
	for _, o := range n.Change.Objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		present[u.GetName()] = true
		if n.Change.Type == watch.Gone {
			d.remove(u.GetName())
			continue
		}
		if err := d.take(u); err != nil {
			return err
		}
	}
	if n.Change.Type == watch.Listed {
		d.confirm(ctx, present)
	}
	return nil
}

// confirm marks the jobs as deleted that are missing from a list and from the cluster. The list may be older than the
// creation of some jobs, so confirm reads the missing jobs from the API server.
func (d *driver) confirm(ctx context.Context, present map[string]bool) {
	for _, m := range d.members {
		name := m.object.GetName()
		if m.job == nil || present[name] {
			continue
		}
		if _, err := d.client.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			d.remove(name)
		}
	}
}

func (d *driver) remove(name string) {
	if m := d.byName[name]; m != nil && m.job != nil {
		m.job, m.deleted = nil, true
		d.report(observed.Ref(d.kind, name), "was deleted", view.Bad)
	}
}

// report prints a change as a line. On a terminal it prints nothing, because the live view shows the change.
func (d *driver) report(who, what string, colour view.Colour) {
	if d.screen != nil {
		return
	}
	t := view.Transition{Who: who, What: what, Colour: colour}
	fmt.Fprintln(d.Out, t.Line(time.Now().UTC().Format("15:04:05Z"), d.style, len(observed.Ref(d.kind, d.members[0].object.GetName()))))
}
