package plugin

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ticket is a pod with the node that a plan gives it.
type ticket struct {
	attempt *attempt
	pod     *corev1.Pod
	node    string
}

// attempt is the carrying out of one plan: its pods bind when all of them have arrived at Permit, or none does.
type attempt struct {
	plugin *Plugin
	group  *group
	size   int

	mu      sync.Mutex
	waiting map[types.UID]bool
	// count is how many pods have arrived at Permit, bound how many are known to be bound.
	count, bound int
	why          string
}

// arrive notes that a pod is at Permit, and tells whether it was the last one.
func (a *attempt) arrive(uid types.UID) (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[types.UID]bool{}
	}
	a.waiting[uid] = true
	a.count++
	return a.why == "" && a.count == a.size
}

// bind notes that a pod is bound, and tells whether the plan has been carried out with that.
func (a *attempt) bind() (done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bound++
	return a.why == "" && a.bound == a.size
}

func (a *attempt) arrived(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiting[uid]
}

func (a *attempt) failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.why != ""
}

// release lets all pods bind.
func (a *attempt) release() {
	for _, uid := range a.members() {
		if w := a.plugin.handle.GetWaitingPod(uid); w != nil {
			w.Allow(Name)
		}
	}
}

// fail ends the attempt. Pods that wait at Permit are turned away; those that bind already go on.
func (a *attempt) fail(why string) {
	a.mu.Lock()
	first := a.why == ""
	complete := a.count == a.size
	if first {
		a.why = why
	}
	a.mu.Unlock()
	if !first {
		return
	}
	if !complete {
		for _, uid := range a.members() {
			if w := a.plugin.handle.GetWaitingPod(uid); w != nil {
				w.Reject(Name, why)
			}
		}
	}
	a.plugin.index.backOff(a.group, time.Now())
	a.plugin.reportFailure(a.group, why)
}

func (a *attempt) members() []types.UID {
	a.mu.Lock()
	defer a.mu.Unlock()
	uids := make([]types.UID, 0, len(a.waiting))
	for uid := range a.waiting {
		uids = append(uids, uid)
	}
	return uids
}

// backOff keeps a group from being planned for a time that grows with each failure.
func (x *index) backOff(g *group, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g.backoff = now.Add(min(firstBackoff<<min(g.failures, 20), longestBackoff))
	g.failures++
	g.changed = true
	time.AfterFunc(time.Until(g.backoff), x.wake)
}

// giveUp notes that a pod does not get the node that was planned for it.
func (p *Plugin) giveUp(uid types.UID) {
	x := p.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.pods[uid]; m != nil && m.pod.Spec.NodeName == "" {
		x.place(m, "")
		m.group.changed = true
		x.freed++
		x.touch(m.group)
	}
}
