package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/jobcontroller"
)

// verb is a kind of step.
type verb int

const (
	passes   verb = iota // the operator handles the job; its call n, counted from 1, has the fault
	syncs                // a cache shows the next event of an object
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

func stepsText(path []step) string {
	texts := make([]string, len(path))
	for i, s := range path {
		texts[i] = fmt.Sprintf("%s %s %d/%d", verbNames[s.verb], s.name, s.n, s.fault)
	}
	return strings.Join(texts, ", ")
}

var verbNames = []string{"passes", "syncs", "starts", "exits", "ends", "evicted", "deleted", "pauses", "relists", "handover", "ticks"}

// exploredWorld is a world in which nothing happens by chance.
type exploredWorld struct {
	*leadership
	calls            int
	faults, troubles int
}

// replay builds the world to which a path leads.
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

// prepare brings the job to a stage without faults.
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
		o.handle()
	}
}

// choices lists the steps that are possible now, with passes that have no fault.
func (p *exploredWorld) choices() []step {
	var all []step
	w, o := p.w, p.leader
	if !o.wake.IsZero() && !o.wake.After(w.now.Add(time.Second)) {
		all = append(all, step{verb: passes})
	} else if !o.wake.IsZero() {
		all = append(all, step{verb: ticks})
	}
	if o.jobPos < len(w.jobLog) {
		all = append(all, step{verb: syncs, name: w.kind.Name})
	}
	for _, name := range sortedKeys(w.podLog) {
		if o.podPos[name] < len(w.podLog[name]) {
			all = append(all, step{verb: syncs, name: name})
		}
	}
	for _, kind := range sortedKeys(w.objectLog) {
		if o.objectPos[kind] < len(w.objectLog[kind]) {
			all = append(all, step{verb: syncs, name: kind})
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

// choicesOf lists the steps that are possible for a pod.
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
	case syncs:
		p.sync(s.name)
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

// pass makes the operator handle the job, with at most one fault.
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

// sync advances the caches by one event of an object.
func (p *exploredWorld) sync(name string) {
	o := p.leader
	switch {
	case name == p.w.kind.Name:
		o.nextOfJob(o)
	case p.w.podLog[name] != nil:
		o.nextOfPod(name, o)
		o.handle()
	default:
		o.nextOfObject(name, o)
	}
}

// runToEnd runs the world without trouble to the end of the job.
func (p *exploredWorld) runToEnd() {
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
