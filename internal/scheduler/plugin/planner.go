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
	"k8s.io/utils/clock"
)

const (
	// tick is the interval at which deadlines are checked.
	tick = time.Second
	// reviewEvery is the number of ticks after which all waiting groups are tried without a known reason.
	reviewEvery = 30
)

// popped is a pod for a scheduling cycle; assignment is nil for pods of other profiles.
type popped struct {
	info       *framework.QueuedPodInfo
	assignment *assignment
	err        error
}

// podRequest is the scheduling goroutine's request for its next pod.
type podRequest struct {
	logger klog.Logger
	reply  chan<- popped
}

// planner decides about groups between scheduling cycles. One goroutine, run, owns everything here: the index of
// pods, groups and queues, the nodes, the attempts to bind gangs and the reservations. Other goroutines send it
// messages. All methods run on that goroutine unless their comment names another one. Each message, call and round has
// one time, which is the argument now of what it does.
type planner struct {
	config     Config
	clock      clock.WithTicker
	handle     fwk.Handle
	index      *index
	nodes      *nodes
	queue      *planningQueue
	nodeLister corelisters.NodeLister
	synced     func() bool
	conditions *conditions
	evictions  *evictions
	// rights is nil if everybody may use all queues.
	rights *rights

	// inbox holds events in the order in which they happened. Calls come from goroutines that wait for the result,
	// and take precedence over events.
	inbox *mailbox
	calls chan func(ctx context.Context, now time.Time)
	// ended is closed when the planner stops answering.
	ended chan struct{}

	// request is the open request of the scheduling goroutine. It is nil during a scheduling cycle, which then owns
	// the snapshot of the nodes.
	request *podRequest
	// leads means that the scheduling goroutine has asked for a pod. It asks only once this scheduler leads.
	leads bool
	// pop takes a pod of another profile out of the scheduler's queue. The feeder passes these pods on through
	// others.
	pop    func(klog.Logger) (*framework.QueuedPodInfo, error)
	others chan popped

	// ready are the pods with a planned node that wait for their scheduling cycle. Last is the assignment of the
	// current or last cycle.
	ready []*member
	last  *assignment
	// gathering are the attempts with some pods at Permit and others missing.
	gathering []*attempt
	// leaving are bound pods that have gone, of which the scheduler's cache may not know yet, with the time until which a
	// round waits for it. Without their room, a round would evict others in their place.
	leaving map[*corev1.Pod]time.Time
	// nextFull is when groups that did not fit may be tried again. Due means that there are such groups.
	nextFull time.Time
	due      bool

	// busy is read by scrapes of metrics too.
	busy *busyClock
}

// newPlanner returns a planner with an empty index.
func newPlanner(handle fwk.Handle, config Config, c clock.WithTicker) *planner {
	pl := &planner{config: config, clock: c, handle: handle, inbox: newMailbox(), busy: newBusyClock(c), calls: make(chan func(context.Context, time.Time)),
		ended: make(chan struct{}), others: make(chan popped), leaving: map[*corev1.Pod]time.Time{}}
	pl.index = newIndex(pl.completed)
	return pl
}

// run is the planner's goroutine. It ends with ctx.
func (pl *planner) run(ctx context.Context) {
	var feeder sync.WaitGroup
	defer feeder.Wait()
	defer close(pl.ended)
	ticker := pl.clock.NewTicker(tick)
	defer ticker.Stop()
	feeding := false
	for ticks := 0; ; {
		pl.busy.begin()
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
		timer := pl.clock.NewTimer(pl.sleep(pl.clock.Now()))
		pl.busy.end()
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case call := <-pl.calls:
			pl.busy.begin()
			call(ctx, pl.clock.Now())
		case <-pl.inbox.filled:
		case pod := <-others:
			pl.answer(pod)
		case <-ticker.C():
			pl.busy.begin()
			ticks++
			pl.tick(ticks, pl.clock.Now())
		case <-timer.C():
			pl.index.alarmed(pl.clock.Now())
		}
		timer.Stop()
	}
}

// read handles the messages that have arrived so far. It handles calls between them, because a scheduling cycle waits
// for each call.
func (pl *planner) read(ctx context.Context) {
	for _, message := range pl.inbox.take() {
		message(pl.clock.Now())
		select {
		case call := <-pl.calls:
			call(ctx, pl.clock.Now())
		default:
		}
	}
}

// serve answers the open request of the scheduling goroutine with a pod that has a node. It runs rounds while there
// is no such pod and a round is requested.
func (pl *planner) serve(ctx context.Context) {
	for pl.request != nil && !pl.handOut(ctx, pl.clock.Now()) && pl.index.woken && ctx.Err() == nil {
		pl.index.woken = false
		pl.round(ctx, pl.clock.Now())
		pl.read(ctx)
	}
}

func (pl *planner) answer(pod popped) {
	pl.request.reply <- pod // the channel is buffered, so this does not block
	pl.request = nil
}

// sleep returns how long the planner has nothing to do unless a message arrives.
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

// tick checks deadlines; n is the number of the tick.
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

// feed takes pods of other profiles out of the scheduler's queue. It runs on its own goroutine because the queue
// blocks.
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

// call runs do on the planner's goroutine and waits for it. It runs on the goroutine of the caller, and returns false
// if the planner has ended.
func (pl *planner) call(do func(ctx context.Context, now time.Time)) bool {
	done := make(chan struct{})
	select {
	case pl.calls <- func(ctx context.Context, now time.Time) { do(ctx, now); close(done) }:
		<-done
		return true
	case <-pl.ended:
		return false
	}
}

// next returns the pod for the next scheduling cycle. It runs on the scheduling goroutine.
func (pl *planner) next(ctx context.Context, logger klog.Logger) popped {
	reply := make(chan popped, 1)
	if !pl.call(func(ctx context.Context, now time.Time) {
		pl.finishLast(now)
		pl.request, pl.leads = &podRequest{logger, reply}, true
		pl.handOut(ctx, now)
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

func (pl *planner) podSeen(pod *corev1.Pod, now time.Time) {
	if pod.Spec.NodeName != "" {
		pl.queue.pods.remove(pod.UID)
	}
	pl.index.podSeen(pod, now)
}

func (pl *planner) podGone(pod *corev1.Pod, now time.Time) {
	pl.queue.pods.remove(pod.UID)
	if pod.Spec.NodeName != "" && pl.leads {
		pl.leaving[pod] = now.Add(tick)
	}
	pl.index.podGone(pod, now)
}
