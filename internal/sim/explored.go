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
	syncs                // a cache shows the next event of an object, and the handlers receive all events
	shows                // a cache shows the next event of a pod, which the handler receives later
	handles              // the handler of pods receives its next event
	starts               // a pod begins to run
	exits                // a pod ends by itself, with exit code n
	ends                 // a pod that is being deleted or stopped terminates, or a terminated pod is removed
	evicted              // a kubelet evicts a pod
	removed              // a user deletes a pod
	loses                // the node of a pod is lost
	returns              // the lost nodes are ready again
	pauses               // a user flips the pause switch
	scales               // a user sets the size of the job to n
	relists              // the operator dies; the next one lists everything
	handover             // the operator dies; the caches of the next one are as late as those of the dead one
	ticks                // time passes until the queue delivers the job
)

// step is one event in an exploration. name is the name of a pod or the kind of another object, and n is a number. The
// verb determines which of them the step uses.
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

var verbNames = []string{"passes", "syncs", "shows", "handles", "starts", "exits", "ends", "evicted", "deleted", "loses", "returns",
	"pauses", "scales", "relists", "handover", "ticks"}

// exploredWorld is a deterministic world: the exploration chooses everything that happens. calls is the number of
// calls in the last pass. faults and troubles are the numbers of faults and troubles that may still happen.
type exploredWorld struct {
	*leadership
	calls            int
	faults, troubles int
}

// newExploredWorld returns a world without a leader.
func (e *explorer) newExploredWorld(w *world) *exploredWorld {
	l := &leadership{w: w, opts: jobcontroller.Options{Engine: engine.Config{MaxListed: 1000}}}
	return &exploredWorld{leadership: l, faults: e.Faults, troubles: e.Troubles}
}

// submitted returns the world in which the job has just been submitted.
func (e *explorer) submitted() *exploredWorld {
	w := newWorld(rand.New(rand.NewPCG(1, 1)), nil)
	w.kind = e.Kind
	p := e.newExploredWorld(w)
	p.lead(newCache(w, 0))
	p.leader.pass() // stands for a pass over another job
	w.submit(e.Job())
	p.leader.nextOfJob(p.leader)
	return p
}

// run returns the world in which all pods run, without any faults so far.
func (e *explorer) run() *world {
	p := e.submitted()
	w := p.w
	for w.status.Phase != batch.JobRunning {
		for _, name := range sortedKeys(w.pods) {
			if pod := w.pods[name]; pod.Status.Phase == corev1.PodPending {
				p.takeOf(pod, step{verb: starts})
			}
		}
		p.leader.sync(true)
		p.pass(step{})
	}
	w.now = w.now.Add(time.Minute)
	return w
}

// replay builds the world that a path leads to.
func (e *explorer) replay(path []step) *exploredWorld {
	var p *exploredWorld
	if e.running == nil {
		p = e.submitted()
	} else {
		p = e.newExploredWorld(e.running.fork())
		p.prepare(e.Stage)
	}
	for _, s := range path {
		p.take(s)
	}
	return p
}

// prepare advances a running job to a stage, without faults.
func (p *exploredWorld) prepare(stage Stage) {
	w := p.w
	p.lead(newCache(w, 0))
	p.pass(step{})
	first := w.pods[sortedKeys(w.pods)[0]]
	switch stage {
	case Restarting:
		p.takeOf(first, step{verb: exits, n: 1})
	case Ending:
		p.takeOf(first, step{verb: exits})
	case Losing:
		w.lost[first.Spec.NodeName] = true
		w.userDeletes(first, false)
	default:
		return
	}
	p.leader.sync(true)
	p.pass(step{})
	if stage == Ending {
		p.leader.syncPods(p.leader, func() bool { return true })
		p.leader.handle()
	}
}

// choices lists the steps that are possible now. Its passes have no fault.
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
			all = append(all, step{verb: syncs, name: name}, step{verb: shows, name: name})
		}
	}
	if len(o.unhandled) > 0 {
		all = append(all, step{verb: handles})
	}
	for _, kind := range sortedKeys(w.objectLog) {
		if o.objectPos[kind] < len(w.objectLog[kind]) {
			all = append(all, step{verb: syncs, name: kind})
		}
	}
	for _, name := range sortedKeys(w.pods) {
		all = append(all, p.choicesOf(w.pods[name])...)
	}
	if len(w.lost) > 0 {
		all = append(all, step{verb: returns})
	}
	if p.troubles > 0 && w.obj != nil {
		all = append(all, step{verb: pauses})
		all = append(all, p.sizes()...)
	}
	if p.faults > 0 {
		all = append(all, step{verb: relists}, step{verb: handover})
	}
	return all
}

// sizes lists the steps that change the size of the job.
func (p *exploredWorld) sizes() []step {
	e := p.w.job.Elastic
	if e == nil {
		return nil
	}
	var all []step
	for n := e.Min; n <= e.Max; n++ {
		if n != p.w.job.Replicas() {
			all = append(all, step{verb: scales, n: n})
		}
	}
	return all
}

// choicesOf lists the steps that are possible for a pod.
func (p *exploredWorld) choicesOf(pod *corev1.Pod) []step {
	w, name := p.w, pod.Name
	running := pod.Status.Phase == corev1.PodRunning
	deleting, lost := pod.DeletionTimestamp != nil, w.lost[pod.Spec.NodeName]
	var all []step
	switch {
	case lost:
	case deleting:
		all = append(all, step{verb: ends, name: name})
	case running && !decided(pod):
		all = append(all, step{verb: exits, name: name}, step{verb: exits, name: name, n: 1})
	case running && pod.Spec.ActiveDeadlineSeconds != nil:
		all = append(all, step{verb: ends, name: name})
	case running: // the sidecar does not end by itself
	case !ended(pod):
		all = append(all, step{verb: starts, name: name})
	}
	if p.troubles == 0 {
		return all
	}
	if !deleting {
		all = append(all, step{verb: removed, name: name})
	}
	if running && !lost {
		all = append(all, step{verb: loses, name: name})
		if !deleting {
			all = append(all, step{verb: evicted, name: name})
		}
	}
	return all
}

// take executes a step.
func (p *exploredWorld) take(s step) {
	w, o := p.w, p.leader
	switch s.verb {
	case passes:
		p.pass(s)
	case syncs:
		p.sync(s.name)
	case shows:
		o.nextOfPod(s.name, o)
	case handles:
		o.handleNext()
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
	case scales:
		p.troubles--
		w.inc.disturbed = w.now
		w.scale(int32(s.n))
	case returns:
		w.lost = map[string]bool{}
		w.inc.disturbed = w.now
	default:
		p.takeOf(w.pods[s.name], s)
	}
	p.leader.fault = nil
}

// takeOf executes a step of a pod.
func (p *exploredWorld) takeOf(pod *corev1.Pod, s step) {
	w := p.w
	switch s.verb {
	case starts:
		pod.Spec.NodeName, pod.Status.Phase = p.nodeFor(pod), corev1.PodRunning
		pod.Status.ContainerStatuses = w.started(pod)
		w.podChanged(pod.Name)
		w.noteRun()
	case exits:
		t := w.last(pod.Name)
		t.at, t.selfEnded, t.reported = w.now, pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug), true
		t.exit, t.success = int32(s.n), s.n == 0
		if w.sidecarRuns(pod) {
			w.terminate(mainOf(pod), t.exit, w.now)
			w.podChanged(pod.Name)
			return
		}
		w.end(pod, t.exit, w.now)
	case ends:
		if pod.DeletionTimestamp == nil {
			w.stop(pod)
		} else if ended(pod) || pod.Status.Phase == corev1.PodPending {
			w.remove(pod.Name)
		} else {
			w.end(pod, 143, w.now)
		}
	case evicted:
		p.troubles--
		w.evict(pod)
	case removed:
		p.troubles--
		w.userDeletes(pod, false)
	case loses:
		p.troubles--
		w.lost[pod.Spec.NodeName] = true
		w.inc.disturbed = w.now
	}
}

// nodeFor returns the node on which a pod starts: the pod's own node or, if that node is lost, the node "spare", which
// several pods can share.
func (p *exploredWorld) nodeFor(pod *corev1.Pod) string {
	if node := "node-" + pod.Name; !p.w.lost[node] {
		return node
	}
	return "spare"
}

// pass makes the operator handle the job, and first advances the time to the operator's wake-up time if necessary. Call
// s.n, counted from 1, has the fault s.fault; if s.n is 0, no call has one. If the operator dies, a new one replaces
// it.
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
		if n++; n != s.n {
			return callWorks
		}
		if s.fault == deposedByFresh || s.fault == deposedByLate {
			p.depose(s.fault)
			return callWorks
		}
		return s.fault
	}
	o.pass()
	p.calls = o.calls
	if o.dead {
		p.lead(newCache(p.w, 0))
	}
}

// depose lets a new leader make a pass.
func (p *exploredWorld) depose(how fault) {
	c := newCache(p.w, 0)
	if how == deposedByLate {
		c = p.leader.clone()
	}
	p.lead(c)
	p.leader.fault = nil
	p.leader.pass()
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

// runToEnd runs the world without faults until the job has finished. Lost nodes do not return, and their pods are
// deleted. A paused job is resumed. Finally, runToEnd checks the state that the world has reached.
func (p *exploredWorld) runToEnd() {
	w := p.w
	for _, name := range sortedKeys(w.pods) {
		if pod := w.pods[name]; w.lost[pod.Spec.NodeName] {
			w.userDeletes(pod, false)
		}
	}
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
