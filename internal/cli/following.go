package cli

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/cli/follow"
	"tensorstack.dev/batch/internal/cli/view"
	"tensorstack.dev/batch/internal/engine"
)

// patience is the time after which a job that no controller has taken up calls for a remark.
const patience = 5 * time.Second

// track is what is known of one followed job.
type track struct {
	*job
	// told is the status whose transitions have been told; nil at first.
	told *batch.JobStatus
	// lost is why the API server does not answer, since when; nil while it does.
	lost      error
	lostSince time.Time
	// unclaimed is true when no controller has taken the job up in good time.
	unclaimed bool
	// impossible is true while the job is known to be unable to start.
	impossible bool
	ages       view.Ages
	deleted    bool
	// normal is the job's normal form; nil where the spec cannot be carried out.
	normal *engine.Job
}

// take makes a version of the job the present one.
func (t *track) take(j *job) {
	normal, err := j.lowered()
	if err != nil {
		normal = nil // the job's conditions say why
	}
	t.job, t.normal = j, normal
}

func (t *track) over() bool {
	finished, _ := view.Finished(t.status())
	return finished || t.deleted
}

// news is a change that concerns one track.
type news struct {
	*track
	// pods is true for news of the job's pods, false for news of the job itself.
	pods   bool
	change follow.Change
	// err ends the following: the API server refuses it.
	err error
}

// following shows jobs until they end.
type following struct {
	*app
	cluster *cluster
	tracks  []*track
	// screen and terminal are nil where output is no terminal: then transitions are told line by line.
	screen   *view.Screen
	terminal *terminal
	style    view.Style
	whoWidth int
	// failIfImpossible ends the following of a job that can never start.
	failIfImpossible bool
}

// view is the job as it is drawn, with what its spec says.
func (t *track) view() view.Job {
	v := t.job.view()
	v.Normal = t.normal
	return v
}

// follow shows jobs until all have ended or ctx is done. It returns an exitError unless all of them have succeeded.
func (a *app) follow(ctx context.Context, c *cluster, jobs []*job) error {
	return a.followWhilePossible(ctx, c, jobs, false)
}

// followWhilePossible is follow that can end with an error once the scheduler says that a job can never start.
func (a *app) followWhilePossible(ctx context.Context, c *cluster, jobs []*job, failIfImpossible bool) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	f := &following{app: a, cluster: c, style: styleOf(a.Out), terminal: terminalOf(a.Out), failIfImpossible: failIfImpossible}
	if f.terminal != nil {
		f.screen = view.NewScreen(a.Out)
	}
	for _, j := range jobs {
		t := &track{ages: view.Ages{}}
		t.take(j)
		f.tracks = append(f.tracks, t)
		f.whoWidth = max(f.whoWidth, utf8.RuneCountInString(j.ref()))
	}
	f.announce()
	incoming := make(chan news)
	for _, t := range f.unfinished() {
		go watchInto(watching, incoming, news{track: t}, c.jobSource(t.kind, t.GetNamespace(), t.GetName()))
		if f.screen == nil {
			continue
		}
		if pods, err := metadata.NewForConfig(c.config); err == nil {
			go watchInto(watching, incoming, news{track: t, pods: true}, podMetadata(pods, t.job))
		}
	}
	if err := f.loop(ctx, incoming); err != nil {
		return err
	}
	if left := f.unfinished(); ctx.Err() != nil && len(left) > 0 {
		return f.detached(left)
	}
	// Ctrl-C as the last job ends does not take its result away.
	return f.conclude(context.WithoutCancel(ctx))
}

// unfinished lists the jobs that have not ended.
func (f *following) unfinished() []*track {
	var left []*track
	for _, t := range f.tracks {
		if !t.over() {
			left = append(left, t)
		}
	}
	return left
}

// announced is the largest number of jobs that are named one by one before they are followed.
const announced = 3

// announce says what is followed, and how to stop.
func (f *following) announce() {
	left := f.unfinished()
	if len(left) > announced {
		f.say("", "Following %d jobs. Ctrl-C stops following; the jobs go on.", len(left))
		return
	}
	for _, t := range left {
		f.say("", "Following %s in namespace %s. Ctrl-C stops following; the job goes on.", t.ref(), t.GetNamespace())
		v := t.view()
		for _, l := range view.Wrap(v.Plan(), "  ", f.terminal.width()) {
			fmt.Fprintln(f.Out, f.style.Paint(view.Dim, l))
		}
	}
}

// say writes a sentence, indented and wrapped to the terminal.
func (f *following) say(indent, format string, args ...any) {
	for _, l := range view.Wrap(fmt.Sprintf(format, args...), indent, f.terminal.width()) {
		fmt.Fprintln(f.Out, l)
	}
}

// watchInto sends what a source tells, stamped with what it is about.
func watchInto(ctx context.Context, to chan<- news, about news, src follow.Source) {
	send := func(n news) {
		select {
		case to <- n:
		case <-ctx.Done():
		}
	}
	err := follow.Run(ctx, src, func(change follow.Change) {
		n := about
		n.change = change
		send(n)
	})
	about.err = err
	send(about)
}

func podMetadata(client metadata.Interface, j *job) follow.Source {
	pods := client.Resource(podResource).Namespace(j.GetNamespace())
	return follow.Source{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = j.selector()
			return pods.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = j.selector()
			return pods.Watch(ctx, o)
		},
	}
}

// loop takes in news until all jobs have ended or ctx is done.
func (f *following) loop(ctx context.Context, incoming <-chan news) error {
	late := time.After(patience)
	changed := false
	var tick <-chan time.Time
	if f.screen != nil {
		ticker := time.NewTicker(time.Second) // ages go on between changes
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		running := false
		for _, t := range f.tracks {
			running = running || !t.over()
		}
		if !running && !changed {
			return nil // all had ended before
		}
		if err := f.draw(); err != nil {
			return err
		}
		if !running {
			return nil
		}
		changed = true
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-late:
			f.remark()
		case n := <-incoming:
			if err := f.take(n); err != nil {
				return err
			}
		}
	}
}

// take brings a track up to date.
func (f *following) take(n news) error {
	switch {
	case n.err != nil && n.pods:
		return nil // ages are no reason to give up: whoever may not read pods sees none
	case n.err != nil:
		return fmt.Errorf("following %s: %w", n.ref(), n.err)
	case n.pods:
		n.takePods(n.change)
		return nil
	}
	switch n.change.Type {
	case follow.Lost:
		n.lost, n.lostSince = n.change.Err, time.Now()
		f.tell(n.ref(), "the API server does not answer; trying again: "+cause(n.lost), view.Wait)
	case follow.Back:
		n.lost = nil
		f.tell(n.ref(), "the API server answers again", view.Plain)
	default:
		return f.takeJob(n)
	}
	return nil
}

func (t *track) takePods(change follow.Change) {
	if change.Type == follow.Lost || change.Type == follow.Back || change.Type == follow.Gone {
		return
	}
	for _, o := range change.Objects {
		if m, ok := o.(metav1.Object); ok {
			t.ages[string(m.GetUID())] = m.GetCreationTimestamp().Time
		}
	}
}

func (f *following) takeJob(n news) error {
	t := n.track
	if err := t.takeStatus(n.change); err != nil {
		return err
	}
	switch {
	case t.deleted:
		f.tell(t.ref(), "was deleted", view.Bad)
	case f.screen == nil:
		for _, transition := range view.Transitions(t.ref(), t.told, t.status()) {
			f.tell(transition.Who, transition.What, transition.Colour)
		}
		t.told = t.status()
	}
	return f.takeImpossible(t)
}

// takeStatus brings the job of a track up to date.
func (t *track) takeStatus(change follow.Change) error {
	raw := pick(change.Objects, t)
	if change.Type == follow.Gone || raw == nil {
		t.deleted = t.deleted || change.Type != follow.Set
		return nil
	}
	j, err := newJob(t.kind, raw)
	if err != nil {
		return err
	}
	t.take(j)
	return nil
}

// pick finds the followed job among objects. One of the same name that came after it is another one.
func pick(objects []runtime.Object, t *track) *unstructured.Unstructured {
	for _, o := range objects {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetUID() == t.GetUID() {
			return u
		}
	}
	return nil
}

// tell prints a transition where no picture is drawn.
func (f *following) tell(who, what string, colour view.Colour) {
	if f.screen != nil {
		return
	}
	t := view.Transition{Who: who, What: what, Colour: colour}
	fmt.Fprintln(f.Out, t.Line(clock(time.Now()), f.style, f.whoWidth))
}

// remark speaks up about jobs that nobody has taken up.
func (f *following) remark() {
	for _, t := range f.tracks {
		if t.status().Phase == "" && !t.deleted {
			t.unclaimed = true
			f.tell(t.ref(), unclaimed, view.Wait)
		}
	}
}

const unclaimed = "no operator has taken the job up yet; is it installed and running?"

// draw brings the picture up to date.
func (f *following) draw() error {
	if f.screen == nil {
		return nil
	}
	var jobs []view.Live
	for _, t := range f.tracks {
		live := view.Live{Job: t.view(), Ages: t.ages}
		switch {
		case t.deleted:
			live.Notice = "was deleted"
		case t.lost != nil:
			live.Notice = fmt.Sprintf("the API server has not answered for %s; trying again: %s", time.Since(t.lostSince).Round(time.Second), cause(t.lost))
		case t.unclaimed && t.status().Phase == "":
			live.Notice = unclaimed
		case t.impossible:
			live.Notice = impossibleNotice
		}
		jobs = append(jobs, live)
	}
	width, height := f.terminal.size()
	return f.screen.Draw(view.Frame(jobs, time.Now(), f.style, width, height-1), width)
}

// detached says how to come back.
func (f *following) detached(left []*track) error {
	var names []string
	for _, t := range left {
		names = append(names, t.ref())
	}
	namespace := left[0].GetNamespace()
	fmt.Fprintf(f.Out, "\nStopped following; %s.\n", goesOn(names))
	fmt.Fprintf(f.Out, "Come back:  %s\n", f.again(f.cluster, namespace, "get "+strings.Join(names, " ")+" --watch"))
	fmt.Fprintf(f.Out, "Its output: %s\n", f.again(f.cluster, namespace, "logs -f "+names[0]))
	return &exitError{code: exitInterrupted}
}

func goesOn(names []string) string {
	if len(names) == 1 {
		return names[0] + " goes on"
	}
	return strings.Join(names, ", ") + " go on"
}

// again is a command line that reaches the same cluster and namespace as this one did.
func (a *app) again(c *cluster, namespace, verb string) string {
	parts := []string{a.name, verb}
	if c.chosen || namespace != c.namespace {
		parts = append(parts, "-n", namespace)
	}
	switch {
	case a.local != "":
		parts = append(parts, "--local="+a.local)
	case a.kubeconfig != "":
		parts = append(parts, "--kubeconfig", a.kubeconfig)
	}
	if context := *a.flags.Context; context != "" {
		parts = append(parts, "--context", context)
	}
	return strings.Join(parts, " ")
}
