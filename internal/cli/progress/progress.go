// Package progress shows the progress of jobs until they finish: as a live view on a terminal, and otherwise as one
// line per transition. The verbs run, rerun and get --watch use it. Start reading at Watch.
package progress

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/cli/watch"
	"tensorstack.dev/batch/internal/engine"
)

// claimTimeout is how long a job may stay without a status before a watch reports that no operator handles the job.
const claimTimeout = 5 * time.Second

// Options select when a watch stops early and which output it shows.
type Options struct {
	// FailIfImpossible stops the watch with an error once the scheduler reports that a job can never start.
	FailIfImpossible bool
	// Logs selects the replicas whose output is shown.
	Logs Logs
}

// track is the state of one watched job.
type track struct {
	kit.WatchedJob
	// reported is the status whose transitions have been reported; nil at first.
	reported *batch.JobStatus
	// lost is the last connection error while the API server does not answer; nil while it answers.
	lost      error
	lostSince time.Time
	// unclaimed is true if the job had no status after claimTimeout.
	unclaimed bool
	// impossible is true while the scheduler reports that the job can never start.
	impossible bool
	ages       view.Ages
	// normal is the converted job; nil if the spec is invalid. The job's conditions then give the reason.
	normal *engine.Job
}

func newTrack(j *kit.Job) *track {
	t := &track{WatchedJob: kit.WatchedJob{Job: j}, ages: view.Ages{}}
	t.convert()
	return t
}

// convert sets normal from the current job, or to nil if the spec is invalid.
func (t *track) convert() {
	t.normal = nil
	if normal, err := t.Normal(); err == nil {
		t.normal = normal
	}
}

// take applies a change to the job.
func (t *track) take(change watch.Change) error {
	err := t.Take(change)
	t.convert()
	return err
}

// view returns the job for rendering, with details of its spec.
func (t *track) view() view.Job {
	v := kit.View(t.Job)
	v.Normal = t.normal
	return v
}

// topic is the subject of a change: a job or its pods.
type topic struct {
	*track
	about aspect
}

// aspect is the part of a job that a source observes.
type aspect int

const (
	ofJob aspect = iota
	// ofAges is the metadata of all pods, and ofOutput the pods whose output is shown.
	ofAges
	ofOutput
)

type update = watch.Update[topic]

// display shows jobs until they finish.
type display struct {
	*kit.Program
	cluster *kit.Cluster
	tracks  []*track
	// screen and terminal are nil if the output is not a terminal. Transitions are then printed line by line.
	screen   *view.Screen
	terminal *kit.Terminal
	style    view.Style
	whoWidth int
	options  Options
	out      outputs
}

// Watch shows jobs until all have finished or are deleted, or until ctx is done. It returns nil if all jobs have
// succeeded, and a kit.ExitError if a job has failed or was deleted, if ctx is done earlier, or as
// Options.FailIfImpossible says. Any other error means that the watch of a job or the output failed.
func Watch(ctx context.Context, p *kit.Program, c *kit.Cluster, jobs []*kit.Job, o Options) error {
	d := &display{Program: p, cluster: c, style: kit.StyleOf(p.Out), terminal: kit.TerminalOf(p.Out), options: o}
	if d.terminal != nil {
		d.screen = view.NewScreen(p.Out)
	}
	for _, j := range jobs {
		d.tracks = append(d.tracks, newTrack(j))
		d.whoWidth = max(d.whoWidth, utf8.RuneCountInString(j.Ref()))
	}
	d.announce()
	if err := d.watch(ctx); err != nil {
		return err
	}
	if left := d.unfinished(); ctx.Err() != nil && len(left) > 0 {
		return d.detached(left)
	}
	// The results are printed even if Ctrl-C arrives when the last job finishes.
	return d.conclude(context.WithoutCancel(ctx))
}

// watch observes the jobs and shows their changes and output until all have finished or ctx is done.
func (d *display) watch(ctx context.Context) error {
	var sources sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		sources.Wait()
		for _, s := range d.out.streamers {
			s.Wait()
		}
	}()
	incoming := make(chan update)
	observe := func(about topic) {
		if source, ok := d.source(about); ok {
			sources.Go(func() { watch.Send(watching, incoming, about, source) })
		}
	}
	for _, t := range d.unfinished() {
		observe(topic{track: t, about: ofJob})
		if d.screen != nil {
			observe(topic{track: t, about: ofAges})
		}
	}
	d.startOutputs(watching, observe)
	if err := d.loop(watching, incoming); err != nil || len(d.out.streamers) == 0 || len(d.unfinished()) > 0 {
		return err
	}
	return d.drain(ctx, stop)
}

// source returns the source that observes a topic. It returns false if it cannot make a client for the source.
func (d *display) source(about topic) (watch.Source, bool) {
	switch about.about {
	case ofAges:
		pods, err := d.cluster.PodMetadataSource(about.Job)
		return pods, err == nil
	case ofOutput:
		return d.cluster.PodSource(about.Job, d.out.streamers[about.track].Selection.Labels(about.Job)), true
	}
	return d.cluster.JobSource(about.Kind, about.GetNamespace(), about.GetName()), true
}

// unfinished returns the jobs that have neither finished nor been deleted.
func (d *display) unfinished() []*track {
	var left []*track
	for _, t := range d.tracks {
		if !t.Over() {
			left = append(left, t)
		}
	}
	return left
}

// announced is the largest number of jobs that are listed before they are watched.
const announced = 3

// announce prints which jobs are watched and how to stop.
func (d *display) announce() {
	left := d.unfinished()
	if len(left) > announced {
		d.printWrapped("", "Following %d jobs. Ctrl-C stops following; the jobs continue.", len(left))
		return
	}
	for _, t := range left {
		d.printWrapped("", "Following %s in namespace %s. Ctrl-C stops following; the job continues.", t.Ref(), t.GetNamespace())
		v := t.view()
		for _, l := range view.Wrap(v.Plan(), "  ", d.terminal.Width()) {
			fmt.Fprintln(d.Out, d.style.Paint(view.Dim, l))
		}
	}
}

// printWrapped prints a sentence, indented and wrapped to the terminal.
func (d *display) printWrapped(indent, format string, args ...any) {
	for _, l := range view.Wrap(fmt.Sprintf(format, args...), indent, d.terminal.Width()) {
		fmt.Fprintln(d.Out, l)
	}
}

// outputInterval is the shortest time between two live views that differ only in their output.
const outputInterval = 100 * time.Millisecond

// loop handles changes until all jobs have finished or ctx is done.
func (d *display) loop(ctx context.Context, incoming <-chan update) error {
	if len(d.unfinished()) == 0 {
		return nil // all jobs had already finished
	}
	late := time.After(claimTimeout)
	var tick, redraw <-chan time.Time
	if d.screen != nil {
		ticker := time.NewTicker(time.Second) // to update the displayed ages
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		if redraw == nil {
			if err := d.draw(); err != nil {
				return err
			}
		}
		if len(d.unfinished()) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case l := <-d.out.lines:
			d.takeLines(l)
			if redraw == nil {
				redraw = time.After(outputInterval)
			}
			continue
		case <-redraw:
		case <-tick:
		case <-late:
			d.remark()
		case n := <-incoming:
			if err := d.take(ctx, n); err != nil {
				return err
			}
		}
		redraw = nil
	}
}

// take applies a change to a track.
func (d *display) take(ctx context.Context, n update) error {
	t := n.About.track
	switch {
	case n.About.about == ofOutput:
		d.takeOutputPods(ctx, n)
		return nil
	case n.About.about == ofAges && n.Err != nil:
		return nil // the watch continues without ages, because a user may not be allowed to read pods
	case n.About.about == ofAges:
		t.takePods(n.Change)
		return nil
	case n.Err != nil:
		return fmt.Errorf("watching %s: %w", t.Ref(), n.Err)
	}
	switch n.Change.Type {
	case watch.Lost:
		t.lost, t.lostSince = n.Change.Err, time.Now()
		d.report(t.Ref(), "the API server does not answer; trying again: "+kit.Cause(t.lost), view.Wait)
	case watch.Back:
		t.lost = nil
		d.report(t.Ref(), "the API server answers again", view.Plain)
	default:
		return d.takeJob(t, n.Change)
	}
	return nil
}

func (t *track) takePods(change watch.Change) {
	if change.Type == watch.Lost || change.Type == watch.Back || change.Type == watch.Gone {
		return
	}
	for _, o := range change.Objects {
		if m, ok := o.(metav1.Object); ok {
			t.ages[string(m.GetUID())] = m.GetCreationTimestamp().Time
		}
	}
}

func (d *display) takeJob(t *track, change watch.Change) error {
	if err := t.take(change); err != nil {
		return err
	}
	switch {
	case t.Deleted:
		d.report(t.Ref(), "was deleted", view.Bad)
	case d.screen == nil:
		for _, transition := range view.Transitions(t.Ref(), t.reported, t.Status()) {
			d.report(transition.Who, transition.What, transition.Colour)
		}
		t.reported = t.Status()
	}
	return d.takeImpossible(t)
}

// report prints a transition if there is no live view.
func (d *display) report(who, what string, colour view.Colour) {
	if d.screen != nil {
		return
	}
	t := view.Transition{Who: who, What: what, Colour: colour}
	fmt.Fprintln(d.Out, t.Line(clock(time.Now()), d.style, d.whoWidth))
}

// clock returns the time of day in UTC, as it is printed before transitions.
func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// remark reports the jobs that still have no status.
func (d *display) remark() {
	for _, t := range d.tracks {
		if t.Status().Phase == "" && !t.Deleted {
			t.unclaimed = true
			d.report(t.Ref(), unclaimedNotice, view.Wait)
		}
	}
}

const unclaimedNotice = "no operator has handled the job yet; is it installed and running?"

// draw redraws the live view on a terminal.
func (d *display) draw() error {
	if d.screen == nil {
		return nil
	}
	var jobs []view.Live
	for _, t := range d.tracks {
		live := view.Live{Job: t.view(), Ages: t.ages}
		switch {
		case t.Deleted:
			live.Notice = "was deleted"
		case t.lost != nil:
			live.Notice = fmt.Sprintf("the API server has not answered for %s; trying again: %s", time.Since(t.lostSince).Round(time.Second), kit.Cause(t.lost))
		case t.unclaimed && t.Status().Phase == "":
			live.Notice = unclaimedNotice
		case t.impossible:
			live.Notice = impossibleNotice
		}
		jobs = append(jobs, live)
	}
	width, height := d.terminal.Size()
	pane := d.pane(width, height)
	frame := view.Frame(jobs, time.Now(), d.style, width, height-1-len(pane))
	return d.screen.Draw(append(frame, pane...), width)
}

// detached prints how to watch the unfinished jobs again. It returns a kit.ExitError.
func (d *display) detached(left []*track) error {
	var names []string
	for _, t := range left {
		names = append(names, t.Ref())
	}
	namespace := left[0].GetNamespace()
	fmt.Fprintf(d.Out, "\nStopped following; %s.\n", continueText(names))
	fmt.Fprintf(d.Out, "Watch it again:    %s\n", d.Again(d.cluster, namespace, "get "+strings.Join(names, " ")+" --watch"))
	fmt.Fprintf(d.Out, "Follow its output: %s\n", d.Again(d.cluster, namespace, "logs -f "+names[0]))
	return &kit.ExitError{Code: kit.ExitInterrupted}
}

// continueText returns a text that says that the jobs continue.
func continueText(names []string) string {
	if len(names) == 1 {
		return names[0] + " continues"
	}
	return strings.Join(names, ", ") + " continue"
}
