package planner

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/placement"
	"tensorstack.dev/batch/internal/scheduler/podqueue"
	"tensorstack.dev/batch/internal/scheduler/rights"
	"tensorstack.dev/batch/internal/tracing"
)

const (
	// deadlineInterval is the interval at which deadlines are checked.
	deadlineInterval = time.Second
	// reviewEvery is the number of deadline intervals after which all waiting groups are tried even if no event has
	// freed room.
	reviewEvery = 30
)

// Config holds the settings of a planner.
type Config struct {
	// ReserveAfter is the time that a group waits before room is reserved for it; zero means never.
	ReserveAfter time.Duration
	// Grace is the time for which a gang may stay partly bound before its pods are evicted; zero means forever.
	Grace time.Duration
	// TopologyLabel is the node label that names topology domains; empty if there are none.
	TopologyLabel string
	// Traced is true if the Writer gets spans for the starts of groups.
	Traced bool
}

// Sources are the parts of the cluster that a planner reads in addition to the events that it gets.
type Sources struct {
	Nodes corelisters.NodeLister
	// Synced reports whether the planner has got the events of all objects that existed at its start.
	Synced func() bool
	// WaitingPod returns a pod that waits at Permit; nil if the pod does not wait.
	WaitingPod func(types.UID) fwk.WaitingPod
	// Rights is nil if all users may use all queues.
	Rights *rights.Rights
}

// Writer writes the planner's decisions to the API server. Its methods do not block.
type Writer interface {
	// Group writes the condition of a PodGroup, and records the spans once the condition is written.
	Group(key types.NamespacedName, condition scheduling.PodGroupCondition, spans []tracing.Span)
	// Pod writes to a pod the reason why it waits.
	Pod(pod *corev1.Pod, reason, message string)
	// DropPod drops the pending write for a pod. It reports whether there was one.
	DropPod(uid types.UID) bool
	// Evict evicts a pod. The message is for users, and the metric of evictions counts by cause.
	Evict(pod *corev1.Pod, message, cause string)
}

// Scheduler is the scheduler whose pods are planned.
type Scheduler struct {
	Queue *podqueue.Queue
	Nodes *placement.Nodes
	// Pop takes a pod of another profile out of the scheduler's queue. Pop blocks until there is such a pod, and
	// returns nil and no error once the queue is closed.
	Pop func(klog.Logger) (*framework.QueuedPodInfo, error)
}

// Popped is a pod for a scheduling cycle. Info is nil if Err is set, and if the planner or the scheduler's queue has
// ended. Assignment is nil for pods of other profiles.
type Popped struct {
	Info       *framework.QueuedPodInfo
	Assignment *Assignment
	Err        error
}

// podRequest is the scheduling goroutine's request for its next pod.
type podRequest struct {
	logger klog.Logger
	reply  chan<- Popped
}

// Planner decides about groups between scheduling cycles. One goroutine, Run, owns all its state: the index of pods,
// groups and queues, the nodes, the attempts to bind gangs and the reservations. Other goroutines send it messages
// through the methods in events.go. All other methods run on that goroutine unless their comment names another one.
//
// The goroutine executes one step after the other: a message, a call, a check of deadlines, a round, or the choice of
// the next pod for a scheduling cycle. The argument now is the time of the whole step.
type Planner struct {
	config    Config
	clock     clock.WithTicker
	sources   Sources
	writer    Writer
	scheduler Scheduler
	index     *index

	// inbox holds events in the order in which they happened. calls takes functions from goroutines that wait until
	// their function has returned. Calls take precedence over events.
	inbox *mailbox
	calls chan func(ctx context.Context, now time.Time)
	// ended is closed when the planner stops answering.
	ended chan struct{}

	// request is the open request of the scheduling goroutine. It is nil during a scheduling cycle, which then owns the
	// snapshot of the nodes.
	request *podRequest
	// leads is true once the scheduling goroutine has asked for a pod. It asks only when this scheduler leads.
	leads bool
	// others are pods of other profiles, which feed takes out of the scheduler's queue.
	others chan Popped

	// ready are the pods with a planned node that wait for their scheduling cycle. last is the assignment of the
	// current or last cycle.
	ready []*member
	last  *Assignment
	// gathering are the attempts with some pods at Permit and others missing.
	gathering []*attempt
	// departed maps bound pods that are gone, but that the scheduler's cache may still contain, to the time until which
	// rounds wait for their removal from the cache. While the cache contains them, their room counts as used, and a
	// round might evict other pods instead.
	departed map[*corev1.Pod]time.Time
	// nextFull is the time at which groups that did not fit may be tried again. due is true if a round is to run then.
	nextFull time.Time
	due      bool

	// busy is also read by scrapes of metrics.
	busy *busyClock
}

// New returns a planner with an empty index.
func New(config Config, c clock.WithTicker, sources Sources, w Writer) *Planner {
	return &Planner{config: config, clock: c, sources: sources, writer: w, index: newIndex(), inbox: newMailbox(), busy: newBusyClock(c),
		calls: make(chan func(context.Context, time.Time)), ended: make(chan struct{}), others: make(chan Popped), departed: map[*corev1.Pod]time.Time{}}
}

// Connect sets the scheduler whose pods the planner plans. Call it before Run.
func (pl *Planner) Connect(s Scheduler) { pl.scheduler = s }

// Run runs the planner on the calling goroutine until ctx ends. It then waits for feed, which may block until the
// scheduler's queue is closed.
func (pl *Planner) Run(ctx context.Context) {
	var feeder sync.WaitGroup
	defer feeder.Wait()
	defer close(pl.ended)
	ticker := pl.clock.NewTicker(deadlineInterval)
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
		var others chan Popped
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
			pl.step(func(now time.Time) { call(ctx, now) })
		case <-pl.inbox.arrival:
		case pod := <-others:
			pl.answer(pod)
		case <-ticker.C():
			pl.busy.begin()
			ticks++
			pl.step(func(now time.Time) { pl.checkDeadlines(ticks, now) })
		case <-timer.C():
			pl.step(pl.index.alarmed)
		}
		timer.Stop()
	}
}

// step executes one step, and then reports which groups have started.
func (pl *Planner) step(do func(now time.Time)) {
	now := pl.clock.Now()
	do(now)
	pl.reportStarts(now)
}

// read handles the messages that have arrived so far. It handles calls between them, because a scheduling cycle waits
// for each call.
func (pl *Planner) read(ctx context.Context) {
	for _, message := range pl.inbox.take() {
		pl.step(message)
		select {
		case call := <-pl.calls:
			pl.step(func(now time.Time) { call(ctx, now) })
		default:
		}
	}
}

// serve answers the open request of the scheduling goroutine with a pod that has a node. It runs rounds while there is
// no such pod and a round is requested.
func (pl *Planner) serve(ctx context.Context) {
	for pl.request != nil && ctx.Err() == nil {
		if pl.step(func(now time.Time) { pl.handOut(ctx, now) }); pl.request == nil || !pl.index.woken {
			return
		}
		pl.index.woken = false
		pl.step(func(now time.Time) { pl.round(ctx, now) })
		pl.read(ctx)
	}
}

func (pl *Planner) answer(pod Popped) {
	pl.request.reply <- pod // the channel is buffered, so this does not block
	pl.request = nil
}

// sleep returns how long the planner may sleep if no message arrives.
func (pl *Planner) sleep(now time.Time) time.Duration {
	at := pl.index.alarm
	if pl.due && (at.IsZero() || pl.nextFull.Before(at)) {
		at = pl.nextFull
	}
	if at.IsZero() || pl.request == nil {
		return time.Hour
	}
	return max(0, at.Sub(now))
}

// checkDeadlines handles everything that has become due. n is the number of the check.
func (pl *Planner) checkDeadlines(n int, now time.Time) {
	switch {
	case !pl.leads:
	case n%reviewEvery == 0:
		pl.index.roomMade(false)
	default:
		pl.index.deadlines(now, pl.config)
	}
	pl.overdue(now)
}

// feed takes pods of other profiles out of the scheduler's queue. It runs on its own goroutine because Pop blocks.
func (pl *Planner) feed(ctx context.Context, logger klog.Logger) {
	for {
		info, err := pl.scheduler.Pop(logger)
		select {
		case pl.others <- Popped{Info: info, Err: err}:
		case <-ctx.Done():
			return
		}
		if info == nil && err == nil { // the queue is closed
			return
		}
	}
}

// call runs on the goroutine of the caller. It executes do on the planner's goroutine and waits until do has returned.
// It returns false, without executing do, if the planner has ended.
func (pl *Planner) call(do func(ctx context.Context, now time.Time)) bool {
	done := make(chan struct{})
	select {
	case pl.calls <- func(ctx context.Context, now time.Time) { do(ctx, now); close(done) }:
		<-done
		return true
	case <-pl.ended:
		return false
	}
}

// Next returns the pod for the next scheduling cycle. It runs on the scheduling goroutine. The result is empty if ctx
// or the planner has ended.
func (pl *Planner) Next(ctx context.Context, logger klog.Logger) Popped {
	reply := make(chan Popped, 1)
	if !pl.call(func(ctx context.Context, now time.Time) {
		pl.finishLast(now)
		pl.request, pl.leads = &podRequest{logger, reply}, true
		pl.handOut(ctx, now)
	}) {
		return Popped{}
	}
	select {
	case got := <-reply:
		return got
	case <-pl.ended:
	case <-ctx.Done():
	}
	return Popped{}
}

// Permit makes the pods of a gang wait for one another. It returns the results of a PermitPlugin. It runs on the
// scheduling goroutine.
func (pl *Planner) Permit(as *Assignment) (status *fwk.Status, timeout time.Duration) {
	if !pl.call(func(_ context.Context, now time.Time) { status, timeout = pl.arrive(as, now) }) {
		return fwk.NewStatus(fwk.Unschedulable, "the scheduler is shutting down"), 0
	}
	return status, timeout
}
