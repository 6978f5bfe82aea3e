package sim

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/jobcontroller"
	"tensorstack.dev/batch/internal/kinds"
)

// Run simulates the world of a seed: first the given number of steps with faults, then without faults until everything
// that can end has ended. It returns the first errors that it finds. It calls trace for every event unless trace is
// nil.
func Run(seed uint64, steps int, trace func(format string, args ...any)) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(rand.New(rand.NewPCG(seed, 1)), trace)
	w.skew = anySkew(rand.New(rand.NewPCG(seed, 3)))
	l := newLeadership(w, rng)
	l.begin(rng)
	for range steps {
		w.step()
		l.turn()
		if len(w.errs) > 0 {
			return fmt.Errorf("seed %d: %s", seed, strings.Join(w.errs, "; "))
		}
	}
	w.calm()
	l.trouble = false
	limit := 4000
	if w.endless() {
		limit = 300 // the job need not finish
	}
	for range limit {
		if w.settled() && l.leader.idle() {
			break
		}
		w.calmStep()
		l.turn()
	}
	w.checkCalm()
	if len(w.errs) > 0 {
		return fmt.Errorf("seed %d: %s", seed, strings.Join(w.errs, "; "))
	}
	return nil
}

// anySkew returns a random skew of the node clocks, which is 0 in most worlds.
func anySkew(rng *rand.Rand) time.Duration {
	return []time.Duration{time.Hour, -time.Hour, 10 * time.Second, 0, 0, 0, 0, 0, 0, 0, 0, 0}[rng.IntN(12)]
}

// calm removes all faults from the world. It also ends debug mode, and pauses or resumes the job.
func (w *world) calm() {
	w.lost, w.refuses = map[string]bool{}, false
	w.inc.disturbed = w.now
	pause := w.chance(20)
	if w.obj == nil {
		return
	}
	if w.job.Debug {
		w.toggleDebug()
	}
	w.switchMode(pause, false)
}

// leadership consists of the leading operator and a standby: the cache of the process that will lead next.
type leadership struct {
	w       *world
	opts    jobcontroller.Options
	leader  *operator
	standby cache
	// overlapping is true while a new leader acts during a call of the old one.
	overlapping bool
	// trouble is true while calls are lost and operators die. slow is the longest duration of a call.
	trouble bool
	slow    time.Duration
}

func newLeadership(w *world, rng *rand.Rand) *leadership {
	coalesce := 1 + rng.IntN(20)
	l := &leadership{w: w, trouble: true, opts: jobcontroller.Options{
		Engine: engine.Config{MaxListed: 1000, Coalesce: time.Duration(coalesce) * time.Second, LogReadTime: time.Duration(coalesce%2*5) * time.Second}}}
	if rng.IntN(4) == 0 {
		l.slow = 300 * time.Millisecond
	}
	return l
}

// begin starts an operator before or after the job is submitted.
func (l *leadership) begin(rng *rand.Rand) {
	var obj kinds.Object
	l.w.kind, obj = l.w.anyJob(rng)
	l.standby = newCache(l.w, 0)
	before := l.w.chance(70)
	if before {
		l.lead(newCache(l.w, 0))
		l.leader.pass() // stands for a pass over another job
		l.leader.passes = 0
	}
	l.w.submit(obj)
	if !before {
		l.lead(newCache(l.w, 0))
	}
}

// lead makes a new operator the leader.
func (l *leadership) lead(c cache) {
	if l.leader != nil {
		l.leader.deposed = true
	}
	l.leader = newOperator(l.w, l.opts, c)
	l.leader.fault = l.fault
}

// succeed replaces the leader with the standby, whose cache may be late, or with a process that has just started.
func (l *leadership) succeed() {
	if l.w.chance(50) {
		l.standby = newCache(l.w, l.w.rng.IntN(2))
	}
	l.lead(l.standby.clone())
}

// fault chooses the fault of a call.
func (l *leadership) fault() fault {
	w := l.w
	if !l.trouble {
		return callWorks
	}
	if w.chance(1) {
		l.overlap()
	}
	if l.slow > 0 {
		w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(l.slow))))
		w.reportDue()
	}
	switch n := w.rng.IntN(100); {
	case n < 2:
		return diesBefore
	case n < 4:
		return diesAfter
	case n < 11:
		return callLost
	case n < 18:
		return answerLost
	}
	return callWorks
}

// overlap lets a new leader act during a call of the old one, which has lost its lease and does not know that yet. The
// old leader then finishes its pass and never starts another.
func (l *leadership) overlap() {
	if l.overlapping {
		return
	}
	l.overlapping = true
	l.w.tracef("the lease is lost during a call")
	for l.succeed(); l.w.chance(70); {
		l.leader.sync(false)
		l.leader.pass()
		l.replaceDead()
	}
	l.overlapping = false
}

// turn lets the operator or its successor take a step.
func (l *leadership) turn() {
	w, o := l.w, l.leader
	if l.trouble && l.disturbed() {
		return
	}
	o.sync(!l.trouble)
	if !o.due() && (!l.trouble || w.chance(40)) {
		return
	}
	if l.trouble && w.chance(15) {
		return // the queue is long
	}
	if o.pass(); o == l.leader {
		l.replaceDead()
	}
}

// disturbed may inject a fault into the leader, and reports whether the leader cannot act in this turn.
func (l *leadership) disturbed() bool {
	w, o := l.w, l.leader
	if w.chance(20) {
		l.standby.syncSome(w)
	}
	if w.chance(2) {
		l.succeed()
		return true
	}
	if w.chance(1) {
		o.relist()
	}
	if w.chance(2) {
		o.frozen, o.latePods, o.lateJob = w.rng.IntN(20), w.rng.IntN(12), w.rng.IntN(12)
	}
	if o.frozen > 0 {
		o.frozen--
		return true
	}
	return false
}

// replaceDead replaces the leader if it has died.
func (l *leadership) replaceDead() {
	if l.leader.dead {
		l.w.tracef("the operator has died")
		l.succeed()
	}
}

// idle reports whether the operator's last pass left nothing to do and nothing to wait for.
func (o *operator) idle() bool { return o.current() && len(o.unhandled) == 0 && o.wake.IsZero() }

// step makes a random change in the world, which may be a fault.
func (w *world) step() {
	longest := 4000
	if w.chance(25) {
		longest = 300
	}
	w.now = w.now.Add(time.Duration(w.rng.IntN(longest)) * time.Millisecond)
	if w.chance(3) {
		w.now = w.now.Add(time.Duration(w.rng.IntN(400)) * time.Second)
	}
	w.reportDue()
	if w.chance(4) {
		w.exitTogether()
	}
	if pod := w.anyPod(); pod != nil {
		switch n := w.rng.IntN(100); {
		case n < 60:
			w.kubelet(pod)
		case n < 64:
			w.userDeletes(pod, w.chance(5))
		case n < 67:
			w.evict(pod)
		}
	}
	if w.obj != nil {
		w.userStep()
	}
}

// userStep simulates an action of a user or of an administrator of nodes.
func (w *world) userStep() {
	before := w.version
	defer func() {
		if w.version != before || len(w.lost) > 0 {
			w.inc.disturbed = w.now
		}
	}()
	switch n := w.rng.IntN(200); {
	case n == 0 && len(w.lost) == 0:
		w.lost["node-1"] = true
	case n == 1:
		w.lost = map[string]bool{}
	case n == 6:
		w.refuses = !w.refuses
	default:
		w.changeStep(n)
	}
}

// changeStep simulates the action n of a user who may change the job.
func (w *world) changeStep(n int) {
	switch {
	case n == 2 || n == 3 && w.job.Pause:
		w.switchMode(!w.job.Pause, w.job.Debug)
	case n == 4 || n == 5 && w.job.Debug:
		w.toggleDebug()
	case n < 14 && w.job.Elastic != nil:
		w.scale(w.anySize())
	case n == 14 && w.chance(10):
		w.removeJob()
	}
}

func (w *world) calmStep() {
	w.now = w.now.Add(time.Duration(1+w.rng.IntN(60)) * time.Second)
	w.reportDue()
	if pod := w.anyPod(); pod != nil {
		w.kubelet(pod)
	}
}

func (w *world) anyPod() *corev1.Pod {
	names := make([]string, 0, len(w.pods))
	for n := range w.pods {
		names = append(names, n)
	}
	if len(names) == 0 {
		return nil
	}
	sort.Strings(names)
	return w.pods[names[w.rng.IntN(len(names))]]
}

// settled reports whether all pods have ended and none is being deleted, so that only the operator can change
// anything.
func (w *world) settled() bool {
	for _, p := range w.pods {
		if !ended(p) || p.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// endless reports whether the job restarts replicas without a limit, so that it may never end.
func (w *world) endless() bool {
	for i := range w.job.Roles {
		r := &w.job.Roles[i].Restart
		if r.Limit == nil && w.job.RestartLimit == nil && (r.OnSuccess || r.OnFailure || len(r.RestartCodes) > 0) {
			return true
		}
	}
	return false
}

// checkCalm checks the state that the world must reach without faults.
func (w *world) checkCalm() {
	switch {
	case w.obj == nil && !finished(w.status): // a user has deleted it
		if len(w.pods) > 0 {
			w.fail("%d pods are left of a job that is deleted", len(w.pods))
		}
	case finished(w.status):
		w.checkCleanUp()
		if w.job.TTL != nil && w.obj != nil {
			w.fail("the job has outlived its time to live")
		}
	case w.job.Pause:
		if len(w.pods) > 0 || w.status.Phase != batch.JobPaused {
			w.fail("paused, but phase %s with %d pods", w.status.Phase, len(w.pods))
		}
	case w.job.Deadline != nil && w.now.Sub(w.status.StartTime.Time) > *w.job.Deadline+time.Minute:
		w.fail("the job outlived its deadline: started %s", w.status.StartTime)
	case !w.endless():
		w.fail("the job did not end: phase %s, %+v", w.status.Phase, w.status.Tasks)
	}
}

func (w *world) checkCleanUp() {
	if w.obj == nil && len(w.pods) > 0 {
		w.fail("%d pods are left of a job that is deleted", len(w.pods))
	}
	for name, p := range w.pods {
		if decided(p) && !ended(p) {
			w.fail("the sidecar of pod %s runs on", name)
		}
		if w.last(name).late {
			w.fail("pod %s, which was created after the end, is still there", name)
		}
	}
	if w.job.CleanUp == batch.CleanUpAll && len(w.pods) > 0 {
		w.fail("%d pods are left after clean-up All", len(w.pods))
	}
	for name, p := range w.pods {
		if w.job.CleanUp == batch.CleanUpUnfinished && !ended(p) {
			w.fail("pod %s runs on after clean-up Unfinished", name)
		}
		if reasonOf(w.status, batch.JobFailedCondition) == batch.ReasonDeadlineExceeded && !ended(p) {
			w.fail("pod %s runs on after the deadline", name)
		}
	}
}
