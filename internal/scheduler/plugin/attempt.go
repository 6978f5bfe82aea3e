package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// firstBackoff doubles up to longestBackoff with each plan in a row of a group that could not be carried out.
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// The pods of a gang arrive at Permit in scheduling cycles that follow one another, so how long the first one waits for
// the last one depends on how many there are. The framework's own bound, which is a quarter of an hour at most, comes
// after that of the planner.
const (
	permitBase    = time.Minute
	permitPerPod  = 100 * time.Millisecond
	permitLongest = 14 * time.Minute
	permitSlack   = 30 * time.Second
)

// permitTimeout is how long the pods of a gang wait for one another at Permit.
func permitTimeout(size int) time.Duration {
	return min(permitBase+time.Duration(size)*permitPerPod, permitLongest)
}

// attempt is the carrying out of one plan: its pods bind when all of them have arrived at Permit, or none does.
type attempt struct {
	group *group
	size  int
	// arrived are the pods that have come to Permit; bound is how many are known to be bound.
	arrived map[types.UID]bool
	bound   int
	// deadline is when all pods have to be there; zero before the first one is.
	deadline time.Time
	// why is why the attempt has failed; empty: it has not.
	why string
}

// assignment tells the scheduling goroutine which node the plan gives to a pod. It does not change.
type assignment struct {
	attempt *attempt
	pod     *corev1.Pod
	node    string
}

// Clone implements fwk.StateData.
func (as *assignment) Clone() fwk.StateData { return as }

// bind notes that a pod is bound, and tells whether the plan has been carried out with that.
func (a *attempt) bind() (done bool) {
	a.bound++
	return a.why == "" && a.bound == a.size
}

// handOut answers the scheduling goroutine with the next pod that has a node; it returns false if there is none.
func (pl *planner) handOut(ctx context.Context) bool {
	for len(pl.ready) > 0 {
		m := pl.ready[0]
		pl.ready = pl.ready[1:]
		pl.nodes.forget(ctx, m.pod.UID) // the cycle that follows takes the room again
		as := &assignment{attempt: m.attempt, pod: m.pod, node: m.core.Node}
		if as.attempt.why != "" {
			pl.giveUp(as)
			continue
		}
		var info *framework.QueuedPodInfo
		if as.node != "" { // else the pod has gone
			info = pl.queue.take(ctx, pl.request.logger, m.pod)
		}
		if info == nil || info.Pod == nil {
			pl.fail(as.attempt, "pod "+m.pod.Name+" is no longer in the queue")
			pl.giveUp(as)
			continue
		}
		pl.last = as
		pl.answer(popped{info: info, assignment: as})
		return true
	}
	return false
}

// settleLast looks at how the last scheduling cycle ended: a pod that did not arrive at Permit ends its gang's attempt.
func (pl *planner) settleLast() {
	as := pl.last
	pl.last = nil
	switch {
	case as == nil:
	case !as.attempt.arrived[as.pod.UID]:
		pl.fail(as.attempt, "pod "+as.pod.Name+" did not get through its scheduling cycle")
		pl.giveUp(as)
	case as.attempt.why != "": // it failed, maybe before the framework had noted that this pod waits
		pl.turnAway(as.attempt)
	}
}

// arrive is the barrier at which the pods of a gang wait for one another. The last one lets all bind.
func (pl *planner) arrive(as *assignment, now time.Time) (*fwk.Status, time.Duration) {
	a := as.attempt
	if a.why != "" {
		return fwk.NewStatus(fwk.Unschedulable, "the plan for its group has failed: "+a.why), 0
	}
	a.arrived[as.pod.UID] = true
	if len(a.arrived) < a.size {
		if a.deadline.IsZero() {
			a.deadline = now.Add(permitTimeout(a.size))
			pl.gathering = append(pl.gathering, a)
		}
		return fwk.NewStatus(fwk.Wait), a.deadline.Sub(now) + permitSlack
	}
	pl.atPermit(a, func(w fwk.WaitingPod) { w.Allow(Name) })
	return nil, 0
}

// atPermit does something with each pod of an attempt that waits at Permit.
func (pl *planner) atPermit(a *attempt, do func(fwk.WaitingPod)) {
	for uid := range a.arrived {
		if w := pl.handle.GetWaitingPod(uid); w != nil {
			do(w)
		}
	}
}

// overdue ends attempts whose pods have waited for too long for one another.
func (pl *planner) overdue(now time.Time) {
	all := pl.gathering
	pl.gathering = nil
	for _, a := range all {
		switch missing := a.size - len(a.arrived); {
		case a.why != "" || missing == 0:
		case now.Before(a.deadline):
			pl.gathering = append(pl.gathering, a)
		default:
			pl.fail(a, fmt.Sprintf("%d of the %d pods that must start together did not get through their scheduling cycles within %s, the time that "+
				"a group of that size has: %s, and %s for each pod", missing, a.size, permitTimeout(a.size), permitBase, permitPerPod))
		}
	}
}

// unbound is told of a pod that had got through its scheduling cycle and is not bound.
func (pl *planner) unbound(as *assignment) {
	pl.fail(as.attempt, "pod "+as.pod.Name+" could not be bound")
	pl.giveUp(as)
}

// fail ends an attempt. Pods that wait at Permit are turned away; those that bind already go on.
func (pl *planner) fail(a *attempt, why string) {
	if a.why != "" {
		return
	}
	a.why = why
	pl.turnAway(a)
	pl.index.backOff(a.group, time.Now())
	pl.reportFailure(a.group, why)
}

// turnAway has the pods of a failed attempt leave Permit, unless all had arrived: then they bind.
func (pl *planner) turnAway(a *attempt) {
	if len(a.arrived) < a.size {
		pl.atPermit(a, func(w fwk.WaitingPod) { w.Reject(Name, a.why) })
	}
}

// backOff keeps a group from being planned for a time that grows with each failure.
func (x *index) backOff(g *group, now time.Time) {
	g.backoff = now.Add(min(firstBackoff<<min(g.failures, 20), longestBackoff))
	g.failures++
	g.changed = true
	x.wakeAt(g.backoff)
}

// giveUp notes that a pod does not get the node that was planned for it.
func (pl *planner) giveUp(as *assignment) {
	x := pl.index
	if m := x.pods[as.pod.UID]; m != nil && m.attempt == as.attempt && !m.bound() {
		x.place(m, "")
		m.group.changed = true
		x.freed++
		x.touch(m.group)
	}
}
