package plugin

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	// tick is how often deadlines are looked at.
	tick = time.Second
	// reviewEvery is how often everything is looked at without a known reason, in ticks.
	reviewEvery = 30
)

// popped is a pod for a scheduling cycle; assignment is nil for pods of other profiles.
type popped struct {
	info       *framework.QueuedPodInfo
	assignment *assignment
	err        error
}

// podRequest is what the scheduling goroutine asks for between two cycles.
type podRequest struct {
	logger klog.Logger
	reply  chan<- popped
}

// planner decides about groups between the scheduling cycles. It is one goroutine, run, which owns everything here: the
// index of pods, groups and queues, the nodes, the attempts to bind gangs and the room that is kept. Others send it
// messages. All methods run on that goroutine, except for those that say otherwise.
type planner struct {
	config     Config
	handle     fwk.Handle
	index      *index
	nodes      *nodes
	queue      *planningQueue
	nodeLister corelisters.NodeLister
	synced     func() bool
	conditions *conditions
	evictions  *evictions
	// rights is nil where everybody may use all queues.
	rights *rights

	// inbox has what happened, in the order in which it did. calls come from goroutines that wait for their end, and
	// come first.
	inbox *mailbox
	calls chan func(context.Context)
	// ended is closed when the planner answers no more.
	ended chan struct{}

	// request is that of the scheduling goroutine; nil while it is in a cycle, which the snapshot of the nodes belongs
	// to then.
	request *podRequest
	// leads: there has been a request, which there is not before this scheduler leads.
	leads bool
	// pop takes pods of other profiles out of the scheduler's queue; others is where they come from there.
	pop    func(klog.Logger) (*framework.QueuedPodInfo, error)
	others chan popped

	// ready are pods with a node that wait for their scheduling cycle; last is the one that has it.
	ready []*member
	last  *assignment
	// gathering are the attempts of which some pods are at Permit and others are not.
	gathering []*attempt
	// nextFull is when groups that did not fit may be tried again; due: there are some.
	nextFull time.Time
	due      bool
}

// newPlanner makes a planner that knows of nothing yet.
func newPlanner(handle fwk.Handle, config Config) *planner {
	pl := &planner{config: config, handle: handle, inbox: newMailbox(), calls: make(chan func(context.Context)), ended: make(chan struct{}), others: make(chan popped)}
	pl.index = newIndex(pl.completed)
	return pl
}

// run is the planner's goroutine.
func (pl *planner) run(ctx context.Context) {
	var feeder sync.WaitGroup
	defer feeder.Wait()
	defer close(pl.ended)
	clock := time.NewTicker(tick)
	defer clock.Stop()
	feeding := false
	for ticks := 0; ; {
		pl.read(ctx)
		pl.serve(ctx)
		if pl.leads && !feeding {
			feeding = true
			logger := klog.FromContext(ctx)
			feeder.Go(func() { pl.feed(ctx, logger) })
		}
		var others chan popped
		if pl.request != nil {
			others = pl.others
		}
		timer := time.NewTimer(pl.sleep(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case call := <-pl.calls:
			call(ctx)
		case <-pl.inbox.filled:
		case pod := <-others:
			pl.answer(pod)
		case now := <-clock.C:
			ticks++
			pl.tick(ticks, now)
		case now := <-timer.C:
			pl.index.alarmed(now)
		}
		timer.Stop()
	}
}

// read does what the messages say that have come so far. Calls do not wait for all of them: a scheduling cycle does
// then.
func (pl *planner) read(ctx context.Context) {
	for _, message := range pl.inbox.take() {
		message()
		select {
		case call := <-pl.calls:
			call(ctx)
		default:
		}
	}
}

// serve answers the scheduling goroutine if it waits and there is a pod with a node, or a round finds a node for one. A
// round sees what has happened until it begins.
func (pl *planner) serve(ctx context.Context) {
	for pl.request != nil && !pl.handOut(ctx) && pl.index.woken && ctx.Err() == nil {
		pl.index.woken = false
		pl.round(ctx)
		pl.read(ctx)
	}
}

func (pl *planner) answer(pod popped) {
	pl.request.reply <- pod // it has room for one
	pl.request = nil
}

// sleep is how long nothing is to be done unless something happens.
func (pl *planner) sleep(now time.Time) time.Duration {
	at := pl.index.alarm
	if pl.due && (at.IsZero() || pl.nextFull.Before(at)) {
		at = pl.nextFull
	}
	if at.IsZero() || pl.request == nil {
		return time.Hour
	}
	return max(0, at.Sub(now))
}

// tick looks at what time brings about.
func (pl *planner) tick(n int, now time.Time) {
	switch {
	case !pl.leads:
	case n%reviewEvery == 0:
		pl.index.roomMade(false)
	default:
		pl.index.deadlines(now, pl.config)
	}
	pl.overdue(now)
}

// feed takes pods of other profiles out of the scheduler's queue. It is a goroutine of its own, for the queue has it
// wait.
func (pl *planner) feed(ctx context.Context, logger klog.Logger) {
	for {
		info, err := pl.pop(logger)
		select {
		case pl.others <- popped{info: info, err: err}:
		case <-ctx.Done():
			return
		}
		if info == nil && err == nil { // the queue is closed
			return
		}
	}
}

// call has the planner do something and waits for that. It runs on the goroutine of the caller, and returns false if
// the planner has ended.
func (pl *planner) call(do func(context.Context)) bool {
	done := make(chan struct{})
	select {
	case pl.calls <- func(ctx context.Context) { do(ctx); close(done) }:
		<-done
		return true
	case <-pl.ended:
		return false
	}
}

// next is the pod of the next scheduling cycle. It runs on the scheduling goroutine.
func (pl *planner) next(ctx context.Context, logger klog.Logger) popped {
	reply := make(chan popped, 1)
	if !pl.call(func(ctx context.Context) {
		pl.settleLast()
		pl.request, pl.leads = &podRequest{logger, reply}, true
		pl.handOut(ctx)
	}) {
		return popped{}
	}
	select {
	case got := <-reply:
		return got
	case <-pl.ended:
	case <-ctx.Done():
	}
	return popped{}
}

func (pl *planner) podSeen(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		pl.queue.pods.remove(pod.UID)
	}
	pl.index.podSeen(pod)
}

func (pl *planner) podGone(pod *corev1.Pod) {
	pl.queue.pods.remove(pod.UID)
	pl.index.podGone(pod)
}
