package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/jobcontroller"
	"tensorstack.dev/batch/internal/kinds"
)

// Exploration bounds what Explore tries.
type Exploration struct {
	// Kind is that of the job, which Job makes.
	Kind kinds.Kind
	Job  func() kinds.Object
	// Stage is where the exploration begins.
	Stage Stage
	// Depth is the number of steps.
	Depth int
	// Faults is the number of calls that go wrong and operators that die, Troubles that of evictions, of deletions of pods by others and
	// of switches of the run mode.
	Faults, Troubles int
	// Workers is the number of states that are worked on at once.
	Workers int
}

// Stage is a moment in the life of a job.
type Stage string

// The stages: the job has just been submitted; all its pods run; its first replica has failed and the operator has seen that; its first
// replica has succeeded, the operator has seen that, and its caches show what it has done to the pods, and not the status yet.
const (
	Submitted  Stage = "submitted"
	Running    Stage = "running"
	Restarting Stage = "restarting"
	Ending     Stage = "ending"
)

// Explored is what Explore did.
type Explored struct {
	// States counts the different states, Steps those taken from one to another, Calms the states from which a calm world went on to
	// its end.
	States, Steps, Calms int
}

// verb is what may happen in a state.
type verb int

const (
	passes   verb = iota // the operator handles the job; its call n, counted from 1, has the fault
	hears                // a cache shows the next event of an object
	starts               // a pod runs
	exits                // a pod ends by itself, with exit code n
	ends                 // a pod that is being deleted comes to its end, or is gone
	evicted              // a kubelet evicts a pod
	removed              // somebody deletes a pod
	pauses               // somebody flips the switch of the pause
	relists              // the operator dies; the next one lists everything
	handover             // the operator dies; the next one has caches as late as its own
	ticks                // time passes, until the queue hands the job out
)

// step is one thing that happens.
type step struct {
	verb  verb
	name  string
	n     int
	fault fault
}

// Explore tries everything that can happen to a job within the bounds, in every order, with the real reconciler. It returns the steps to
// the first state that is wrong as an error. States that are alike in all that matters are gone on from once.
func Explore(x Exploration) (Explored, error) {
	e := &explorer{Exploration: x, seen: map[uint64]bool{}}
	level := [][]step{nil}
	for depth := 0; depth < x.Depth && len(level) > 0 && e.err == nil; depth++ {
		level = e.expand(level)
	}
	return e.done, e.err
}

type explorer struct {
	Exploration
	mu   sync.Mutex
	seen map[uint64]bool
	done Explored
	err  error
}

// expand takes every step from every state of a level, each of which is given by the steps to it. It returns the new states.
func (e *explorer) expand(level [][]step) [][]step {
	var next [][]step
	var wg sync.WaitGroup
	todo := make(chan []step)
	for range e.Workers {
		wg.Go(func() {
			for path := range todo {
				found := e.successors(path)
				e.mu.Lock()
				next = append(next, found...)
				e.mu.Unlock()
			}
		})
	}
	for _, path := range level {
		todo <- path
	}
	close(todo)
	wg.Wait()
	return next
}

// successors returns the new states one step from a state.
func (e *explorer) successors(path []step) [][]step {
	var found [][]step
	for _, s := range e.replay(path).choices() {
		play, next := e.try(path, s)
		found = append(found, next...)
		if s.verb != passes || play.faults == 0 {
			continue
		}
		calls := play.calls
		for n := 1; n <= calls; n++ {
			for _, f := range []fault{callLost, answerLost, diesBefore, diesAfter} {
				if f == diesBefore && n > 1 {
					continue // that is to die after the call before
				}
				_, next := e.try(path, step{verb: passes, n: n, fault: f})
				found = append(found, next...)
			}
		}
	}
	return found
}

// try takes one more step, and returns the path to where it leads, unless that is known.
func (e *explorer) try(path []step, s step) (*exploredWorld, [][]step) {
	play := e.replay(path)
	play.take(s)
	sum := play.sum()
	path = append(slices.Clone(path), s)
	e.mu.Lock()
	known := e.seen[sum]
	e.seen[sum] = true
	e.done.Steps++
	if !known {
		e.done.States++
	}
	e.mu.Unlock()
	e.report(path, play)
	if known {
		return play, nil
	}
	if sum%calmEvery == 0 {
		calm := e.replay(path)
		calm.goOn()
		e.mu.Lock()
		e.done.Calms++
		e.mu.Unlock()
		e.report(path, calm)
	}
	return play, [][]step{path}
}

// calmEvery is the number of states of which one is gone on from to the end of the job.
const calmEvery = 16

// report keeps what was found to be wrong.
func (e *explorer) report(path []step, play *exploredWorld) {
	if len(play.w.errs) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = fmt.Errorf("after %s: %s", stepsText(path), strings.Join(play.w.errs, "; "))
	}
}

func stepsText(path []step) string {
	texts := make([]string, len(path))
	for i, s := range path {
		texts[i] = fmt.Sprintf("%s %s %d/%d", verbNames[s.verb], s.name, s.n, s.fault)
	}
	return strings.Join(texts, ", ")
}

var verbNames = []string{"passes", "hears", "starts", "exits", "ends", "evicted", "deleted", "pauses", "relists", "handover", "ticks"}

// exploredWorld is a world in which nothing happens by chance.
type exploredWorld struct {
	*leadership
	calls            int
	faults, troubles int
}

// replay makes the world anew that a path leads to.
func (e *explorer) replay(path []step) *exploredWorld {
	w := newWorld(rand.New(rand.NewPCG(1, 1)), nil)
	w.kind = e.Kind
	l := &leadership{w: w, opts: jobcontroller.Options{Engine: engine.Config{MaxListed: 1000}}}
	l.lead(newCache(w, 0))
	l.leader.pass() // over another job
	w.submit(e.Job())
	l.leader.nextOfJob(l.leader)
	play := &exploredWorld{leadership: l, faults: e.Faults, troubles: e.Troubles}
	play.prepare(e.Stage)
	for _, s := range path {
		play.take(s)
	}
	return play
}

// prepare brings the job to a stage. Nothing goes wrong on the way.
func (p *exploredWorld) prepare(stage Stage) {
	w, o := p.w, p.leader
	if stage == Submitted {
		return
	}
	for w.status.Phase != batch.JobRunning {
		for _, name := range sortedKeys(w.pods) {
			if pod := w.pods[name]; pod.Status.Phase == corev1.PodPending {
				p.takeOf(pod, step{verb: starts})
			}
		}
		o.sync(true)
		p.pass(step{})
	}
	if stage == Running {
		return
	}
	w.now = w.now.Add(time.Minute)
	end := step{verb: exits}
	if stage == Restarting {
		end.n = 1
	}
	p.takeOf(w.pods[sortedKeys(w.pods)[0]], end)
	o.sync(true)
	p.pass(step{})
	if stage == Ending {
		o.syncPods(o, func() bool { return true })
	}
}

// choices lists what can happen now; of the passes the one in which nothing goes wrong.
func (p *exploredWorld) choices() []step {
	var all []step
	w, o := p.w, p.leader
	if !o.wake.IsZero() && !o.wake.After(w.now.Add(time.Second)) {
		all = append(all, step{verb: passes})
	} else if !o.wake.IsZero() {
		all = append(all, step{verb: ticks})
	}
	if o.jobPos < len(w.jobLog) {
		all = append(all, step{verb: hears, name: w.kind.Name})
	}
	for _, name := range sortedKeys(w.podLog) {
		if o.podPos[name] < len(w.podLog[name]) {
			all = append(all, step{verb: hears, name: name})
		}
	}
	for _, kind := range sortedKeys(w.objectLog) {
		if o.objectPos[kind] < len(w.objectLog[kind]) {
			all = append(all, step{verb: hears, name: kind})
		}
	}
	for _, name := range sortedKeys(w.pods) {
		all = append(all, p.choicesOf(w.pods[name])...)
	}
	if p.troubles > 0 && w.obj != nil {
		all = append(all, step{verb: pauses})
	}
	if p.faults > 0 {
		all = append(all, step{verb: relists}, step{verb: handover})
	}
	return all
}

// choicesOf lists what can happen to a pod.
func (p *exploredWorld) choicesOf(pod *corev1.Pod) []step {
	var all []step
	running := pod.Status.Phase == corev1.PodRunning
	switch {
	case pod.DeletionTimestamp != nil:
		return []step{{verb: ends, name: pod.Name}}
	case running:
		all = append(all, step{verb: exits, name: pod.Name}, step{verb: exits, name: pod.Name, n: 1})
	case !ended(pod):
		all = append(all, step{verb: starts, name: pod.Name})
	}
	if p.troubles > 0 {
		all = append(all, step{verb: removed, name: pod.Name})
		if running {
			all = append(all, step{verb: evicted, name: pod.Name})
		}
	}
	return all
}

// take takes a step.
func (p *exploredWorld) take(s step) {
	w, o := p.w, p.leader
	switch s.verb {
	case passes:
		p.pass(s)
	case hears:
		p.hear(s.name)
	case ticks:
		w.now = o.wake
	case relists, handover:
		p.faults--
		if c := o.clone(); s.verb == handover {
			p.lead(c)
		} else {
			p.lead(newCache(w, 0))
		}
	case pauses:
		p.troubles--
		w.inc.disturbed = w.now
		w.switchMode(!w.job.Pause, false)
	default:
		p.takeOf(w.pods[s.name], s)
	}
	p.leader.fault = nil
}

// takeOf takes a step of a pod.
func (p *exploredWorld) takeOf(pod *corev1.Pod, s step) {
	w := p.w
	switch s.verb {
	case starts:
		pod.Spec.NodeName, pod.Status.Phase = "node-0", corev1.PodRunning
		pod.Status.ContainerStatuses = w.started(pod)
		w.podChanged(pod.Name)
		w.noteRun()
	case exits:
		t := w.last(pod.Name)
		t.at, t.selfEnded, t.reported = w.now, pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug), true
		t.exit, t.success = int32(s.n), s.n == 0
		w.end(pod, t.exit, w.now)
	case ends:
		if ended(pod) || pod.Status.Phase == corev1.PodPending {
			w.remove(pod.Name)
		} else {
			w.end(pod, 143, w.now)
		}
	case evicted:
		p.troubles--
		w.evict(pod)
	case removed:
		p.troubles--
		w.userDeletes(pod)
	}
}

// pass lets the operator handle the job, with at most one fault.
func (p *exploredWorld) pass(s step) {
	o := p.leader
	if o.wake.After(p.w.now) {
		p.w.now = o.wake
	}
	if s.n > 0 {
		p.faults--
	}
	n := 0
	o.fault = func() fault {
		if n++; n == s.n {
			return s.fault
		}
		return callWorks
	}
	o.pass()
	p.calls = o.calls
	if o.dead {
		p.lead(newCache(p.w, 0))
	}
}

// hear lets the caches see the next event of an object.
func (p *exploredWorld) hear(name string) {
	o := p.leader
	switch {
	case name == p.w.kind.Name:
		o.nextOfJob(o)
	case p.w.podLog[name] != nil:
		o.nextOfPod(name, o)
	default:
		o.nextOfObject(name, o)
	}
}

// goOn plays the world on, without any trouble, to the end of the job.
func (p *exploredWorld) goOn() {
	w := p.w
	if w.job.Pause && w.obj != nil {
		w.switchMode(false, false)
	}
	w.inc.disturbed = w.now
	for range 2000 {
		if w.settled() && p.leader.idle() {
			break
		}
		w.calmStep()
		p.turn()
	}
	w.checkCalm()
}
