package get

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/cli/watch"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/observed"
)

// update is a change of the jobs of one kind.
type update = watch.Update[*kinds.Kind]

// list shows the jobs of a namespace, or of all namespaces, and their changes. On a terminal, it shows one table that
// it redraws. Otherwise it prints a table, followed by a line for each job that is created or deleted, and for each
// change of a job's phase or of the reason why it waits.
type list struct {
	*kit.Program
	options *options
	jobs    map[types.UID]*kit.Job
	// screen and terminal are nil if the output is not a terminal.
	screen   *view.Screen
	terminal *kit.Terminal
	// lost is the last connection error while the API server does not answer; nil while it answers.
	lost error
}

// watchList shows a list of jobs until ctx is done.
func watchList(ctx context.Context, p *kit.Program, c *kit.Cluster, o *options, jobs []*kit.Job) error {
	l := &list{Program: p, options: o, jobs: map[types.UID]*kit.Job{}, terminal: kit.TerminalOf(p.Out)}
	for _, j := range jobs {
		l.jobs[j.GetUID()] = j
	}
	if l.terminal != nil {
		l.screen = view.NewScreen(p.Out)
	} else if err := printJobs(p, o, jobs, false, c.Namespace); err != nil {
		return err
	}
	var sources sync.WaitGroup
	defer sources.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	incoming := make(chan update)
	for i := range kinds.All {
		kind := &kinds.All[i]
		source := c.JobsSource(kind, o.namespace(c), o.labels)
		source.Answered = true
		sources.Go(func() { watch.Send(ctx, incoming, kind, source) })
	}
	return l.loop(ctx, incoming)
}

// loop shows the list and handles changes until ctx is done. It then returns a kit.ExitError. Any other error means
// that a watch or the output failed.
func (l *list) loop(ctx context.Context, incoming <-chan update) error {
	tick := time.NewTicker(time.Second) // to update the displayed ages
	defer tick.Stop()
	for {
		if err := l.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &kit.ExitError{Code: kit.ExitInterrupted}
		case <-tick.C:
		case n := <-incoming:
			if err := l.take(n); err != nil {
				return err
			}
		}
	}
}

// take applies a change. It ignores the errors of kinds that are not installed or that the user may not list: get has
// already reported the latter.
func (l *list) take(n update) error {
	switch {
	case n.Err != nil && (kit.NotServed(n.Err) || apierrors.IsForbidden(n.Err)):
		return nil
	case n.Err != nil:
		return fmt.Errorf("watching %s: %w", n.About.Plural, n.Err)
	}
	switch n.Change.Type {
	case watch.Lost:
		if l.lost == nil {
			l.report("", "the API server does not answer; trying again: "+kit.Cause(n.Change.Err), view.Wait)
		}
		l.lost = n.Change.Err
	case watch.Back:
		if l.lost != nil {
			l.report("", "the API server answers again", view.Plain)
		}
		l.lost = nil
	case watch.Gone:
		for _, o := range n.Change.Objects {
			if u, ok := o.(*unstructured.Unstructured); ok {
				l.remove(u.GetUID())
			}
		}
	default:
		return l.set(n)
	}
	return nil
}

// set applies new versions of jobs. A list of all jobs of a kind removes the jobs that it does not contain.
func (l *list) set(n update) error {
	seen := map[types.UID]bool{}
	for _, o := range n.Change.Objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		j, err := observed.New(n.About, u)
		if err != nil {
			return err
		}
		seen[j.GetUID()] = true
		var old *batch.JobStatus
		if before := l.jobs[j.GetUID()]; before != nil {
			old = before.Status()
		} else if j.Status().Phase == "" {
			l.report(l.ref(j), "created", view.Plain)
		}
		l.jobs[j.GetUID()] = j
		if t, changed := view.JobTransition(l.ref(j), old, j.Status()); changed {
			l.report(t.Who, t.What, t.Colour)
		}
	}
	if n.Change.Type == watch.Listed {
		for uid, j := range l.jobs {
			if j.Kind.Name == n.About.Name && !seen[uid] {
				l.remove(uid)
			}
		}
	}
	return nil
}

func (l *list) remove(uid types.UID) {
	if j := l.jobs[uid]; j != nil {
		delete(l.jobs, uid)
		l.report(l.ref(j), "was deleted", view.Dim)
	}
}

// ref returns the address of a job, with its namespace if the jobs of all namespaces are shown.
func (l *list) ref(j *kit.Job) string {
	if l.options.allNamespaces {
		return j.GetNamespace() + "/" + j.Ref()
	}
	return j.Ref()
}

// report prints a change as a line. On a terminal it prints nothing, because the redrawn table shows the change.
func (l *list) report(who, what string, colour view.Colour) {
	if l.screen != nil {
		return
	}
	width := 0
	for _, j := range l.jobs {
		width = max(width, len(l.ref(j)))
	}
	t := view.Transition{Who: who, What: what, Colour: colour}
	fmt.Fprintln(l.Out, t.Line(time.Now().UTC().Format("15:04:05Z"), kit.StyleOf(l.Out), width))
}

// draw redraws the table on a terminal.
func (l *list) draw() error {
	if l.screen == nil {
		return nil
	}
	width, height := l.terminal.Size()
	style := kit.StyleOf(l.Out)
	var rows []view.Job
	for _, j := range sorted(slices.Collect(maps.Values(l.jobs))) {
		rows = append(rows, kit.View(j))
	}
	lines := view.JobList(rows, time.Now(), style, l.options.allNamespaces, l.options.output == kit.Wide, width, height-2)
	if l.lost != nil {
		notice := "The API server does not answer; trying again: " + kit.Cause(l.lost)
		lines = append(lines, style.Paint(view.Wait, strings.Join(view.Wrap(notice, "", width), " ")))
	}
	return l.screen.Draw(lines, width)
}

// sorted sorts jobs in place by namespace, name and kind, and returns them.
func sorted(jobs []*kit.Job) []*kit.Job {
	slices.SortStableFunc(jobs, func(a, b *kit.Job) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.Kind.Name, b.Kind.Name))
	})
	return jobs
}
