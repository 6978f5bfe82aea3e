package planner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// PluginName is the name under which the planner allows and rejects pods at Permit.
const PluginName = "T9kGang"

const (
	// firstBackoff is the delay before a group is planned again after its plan failed. It doubles with each failure in
	// a row, up to maxBackoff.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
)

// The pods of a gang reach Permit in consecutive scheduling cycles, so the timeout grows with the number of pods. The
// framework's own timeout, which is at most 15 minutes, expires permitSlack after the planner's timeout.
const (
	permitBase    = time.Minute
	permitPerPod  = 100 * time.Millisecond
	permitLongest = 14 * time.Minute
	permitSlack   = 30 * time.Second
)

// permitTimeout returns how long the pods of a gang of this size wait for one another at Permit.
func permitTimeout(size int) time.Duration {
	return min(permitBase+time.Duration(size)*permitPerPod, permitLongest)
}

// attempt is the execution of one plan. None of its pods binds before all of them have reached Permit.
type attempt struct {
	group *group
	size  int
	// arrived are the pods that have reached Permit. bound is the number of pods that are known to be bound.
	arrived map[types.UID]bool
	bound   int
	// deadline is the time by which all pods must have reached Permit; zero before the first pod has.
	deadline time.Time
	// why is the reason why the attempt failed; empty if it has not failed.
	why string
}

// Assignment is the node that a plan gives to a pod. It is immutable, because the scheduling goroutine reads it too.
type Assignment struct {
	// Pod and Node are the pod and its planned node.
	Pod     *corev1.Pod
	Node    string
	attempt *attempt
}

// Clone implements fwk.StateData.
func (as *Assignment) Clone() fwk.StateData { return as }

// bind counts a bound pod. It reports whether the pod was the last one of an attempt that has not failed.
func (a *attempt) bind() (done bool) {
	a.bound++
	return a.why == "" && a.bound == a.size
}

// handOut answers the scheduling goroutine with the next pod that has a planned node. It returns false if there is
// none.
func (pl *Planner) handOut(ctx context.Context, now time.Time) bool {
	for len(pl.ready) > 0 {
		m := pl.ready[0]
		pl.ready = pl.ready[1:]
		pl.scheduler.Nodes.Forget(ctx, m.object.UID) // the scheduling cycle assumes the pod again
		as := &Assignment{Pod: m.object, Node: m.Node, attempt: m.attempt}
		if as.attempt.why != "" {
			pl.giveUp(as, now)
			continue
		}
		var info *framework.QueuedPodInfo
		if as.Node != "" { // an empty node means that the pod is gone
			info = pl.scheduler.Queue.Take(ctx, pl.request.logger, m.object)
		}
		if info == nil || info.Pod == nil {
			pl.fail(as.attempt, "pod "+m.object.Name+" is no longer in the queue", now)
			pl.giveUp(as, now)
			continue
		}
		pl.last = as
		pl.answer(Popped{Info: info, Assignment: as})
		return true
	}
	return false
}

// finishLast handles the end of the last scheduling cycle. If its pod did not reach Permit, the attempt of its gang
// fails.
func (pl *Planner) finishLast(now time.Time) {
	as := pl.last
	pl.last = nil
	switch {
	case as == nil:
	case !as.attempt.arrived[as.Pod.UID]:
		pl.fail(as.attempt, "pod "+as.Pod.Name+" did not get through its scheduling cycle", now)
		pl.giveUp(as, now)
	case as.attempt.why != "": // fail may have run before the framework registered this pod as waiting
		pl.rejectWaiting(as.attempt)
	}
}

// arrive decides at Permit about one pod of an attempt. Pods wait until the last one arrives, which lets all of them
// bind.
func (pl *Planner) arrive(as *Assignment, now time.Time) (*fwk.Status, time.Duration) {
	a := as.attempt
	if a.why != "" {
		return fwk.NewStatus(fwk.Unschedulable, "the plan for its group has failed: "+a.why), 0
	}
	a.arrived[as.Pod.UID] = true
	if len(a.arrived) < a.size {
		if a.deadline.IsZero() {
			a.deadline = now.Add(permitTimeout(a.size))
			pl.gathering = append(pl.gathering, a)
		}
		return fwk.NewStatus(fwk.Wait), a.deadline.Sub(now) + permitSlack
	}
	pl.atPermit(a, func(w fwk.WaitingPod) { w.Allow(PluginName) })
	return nil, 0
}

// atPermit calls do with each pod of an attempt that waits at Permit.
func (pl *Planner) atPermit(a *attempt, do func(fwk.WaitingPod)) {
	for uid := range a.arrived {
		if w := pl.sources.WaitingPod(uid); w != nil {
			do(w)
		}
	}
}

// overdue fails the attempts whose deadline has passed.
func (pl *Planner) overdue(now time.Time) {
	all := pl.gathering
	pl.gathering = nil
	for _, a := range all {
		switch missing := a.size - len(a.arrived); {
		case a.why != "" || missing == 0:
		case now.Before(a.deadline):
			pl.gathering = append(pl.gathering, a)
		default:
			pl.fail(a, fmt.Sprintf("%d of the %d pods that must start together did not get through their scheduling cycles within %s, the time that "+
				"a group of that size has: %s, and %s for each pod", missing, a.size, permitTimeout(a.size), permitBase, permitPerPod), now)
		}
	}
}

// unbound handles a pod that passed its scheduling cycle and was not bound.
func (pl *Planner) unbound(as *Assignment, now time.Time) {
	pl.fail(as.attempt, "pod "+as.Pod.Name+" could not be bound", now)
	pl.giveUp(as, now)
}

// fail ends an attempt. It rejects the pods that wait at Permit, delays the next plan for the group, and reports the
// failure. Pods that are already being bound continue. An attempt that has failed before stays as it is.
func (pl *Planner) fail(a *attempt, why string, now time.Time) {
	if a.why != "" {
		return
	}
	a.why = why
	attempts.WithLabelValues(attemptFailed).Inc()
	pl.rejectWaiting(a)
	pl.index.backOff(a.group, now)
	pl.reportFailure(a.group, why, now)
}

// rejectWaiting rejects the pods of a failed attempt that wait at Permit. If all pods had arrived, it does nothing:
// they are being bound.
func (pl *Planner) rejectWaiting(a *attempt) {
	if len(a.arrived) < a.size {
		pl.atPermit(a, func(w fwk.WaitingPod) { w.Reject(PluginName, a.why) })
	}
}

// backOff delays the next plan for a group. The delay grows with each consecutive failure.
func (x *index) backOff(g *group, now time.Time) {
	g.backoff = now.Add(min(firstBackoff<<min(g.failures, 20), maxBackoff))
	g.failures++
	g.changed = true
	x.wakeAt(g.backoff)
}

// giveUp removes the planned node from a pod that is not bound to it, unless a newer plan has given the pod a node.
func (pl *Planner) giveUp(as *Assignment, now time.Time) {
	x := pl.index
	if m := x.pods[as.Pod.UID]; m != nil && m.attempt == as.attempt && !m.bound() {
		x.setNode(m, "")
		m.group.changed = true
		x.freed++
		x.touch(m.group, now)
	}
}
