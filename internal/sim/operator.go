package sim

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/jobcontroller"
)

// operator is a process with late caches, the real reconciler of jobs and its queue. It may die at any call.
type operator struct {
	connection
	cache
	opts       jobcontroller.Options
	reconciler *jobcontroller.Reconciler
	pods       handler.EventHandler
	changes    predicate.Predicate
	// live is the last answer of a live list of pods, liveVersion its version and liveAt its time.
	live        map[string]*corev1.Pod
	liveVersion int
	liveAt      time.Time
	// number is the number of this operator in the world, counted from 1.
	number int
	// deposed is true if another operator leads. This one does not know that until its pass ends.
	deposed bool
	// wake is when the queue delivers the job next; zero means never.
	wake time.Time
	// retries limits the rate of passes after failed ones.
	retries workqueue.TypedRateLimiter[reconcile.Request]
	passes  int
	// frozen is the number of turns for which the process does nothing. latePods and lateJob are the numbers of turns
	// for which it then gets no events of pods and of the job.
	frozen, latePods, lateJob int
	// unhandled are the pod events that the cache shows and the handler has not received yet: in a real process, cache
	// and handler are separate goroutines.
	unhandled []podEvent
}

// newOperator starts an operator that leads. Its caches were filled earlier.
func newOperator(w *world, opts jobcontroller.Options, c cache) *operator {
	o := &operator{connection: connection{w: w}, cache: c, opts: opts, retries: jobcontroller.Retries()}
	o.reconciler = jobcontroller.NewReconciler(w.kind, opts, jobcontroller.API{
		Client: apiClient{o: o}, Live: liveReader{o}, Statuses: o.statuses(), Recorder: o, Clock: worldClock{w},
	})
	o.pods, o.changes = o.reconciler.PodHandler(), o.reconciler.JobChanges()
	w.operators++
	o.number = w.operators
	w.forgetWatched(&o.cache)
	for _, name := range sortedKeys(c.cachedPods) {
		o.pods.Create(context.Background(), event.CreateEvent{Object: c.cachedPods[name], IsInInitialList: true}, o.queue())
	}
	if c.cachedJob() != nil {
		o.wakeAt(w.now)
	}
	return o
}

// Record receives the events of the job. It fails the world if an incident, its recovery or an end by a rule is
// reported twice.
func (o *operator) Record(_ client.Object, e engine.Event) {
	w := o.w
	w.tracef("event %s: %s", e.Reason, e.Message)
	w.events[e.Reason]++
	switch n := w.events[e.Reason]; {
	case (e.Reason == batch.EventIncident || e.Reason == batch.EventRecovered) && n > w.status.Restarts,
		(e.Reason == batch.ReasonSuccessRule || e.Reason == batch.ReasonFailureRule) && n > 1:
		w.fail("event %s is reported %d times, after %d incidents", e.Reason, n, w.status.Restarts)
	}
}

var (
	jobKey  = types.NamespacedName{Namespace: "ns", Name: jobName}
	request = reconcile.Request{NamespacedName: jobKey}
)

// pass runs one reconciliation, which the operator may not survive.
func (o *operator) pass() {
	o.w.tracef("    a pass of operator %d over job v%s", o.number, o.cachedVersion())
	o.wake, o.calls = time.Time{}, 0
	o.passes++
	result, err := o.reconciler.Reconcile(log.IntoContext(context.Background(), logr.Discard()), request)
	switch {
	case o.dead:
	case err != nil:
		o.w.tracef("pass failed: %v", err)
		o.wakeAt(o.w.now.Add(o.retries.When(request)))
	default:
		o.retries.Forget(request)
		if result.RequeueAfter > 0 {
			o.wakeAt(o.w.now.Add(result.RequeueAfter))
		}
		o.checkWake()
	}
}

func (o *operator) wakeAt(t time.Time) {
	if o.wake.IsZero() || t.Before(o.wake) {
		o.wake = t
	}
}

// due reports whether the queue delivers the job now.
func (o *operator) due() bool { return !o.wake.IsZero() && !o.w.now.Before(o.wake) }

// wakeQueue is the part of a workqueue that event handlers use.
type wakeQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	o *operator
}

func (q wakeQueue) AddAfter(_ reconcile.Request, d time.Duration) { q.o.wakeAt(q.o.w.now.Add(d)) }

func (o *operator) queue() wakeQueue { return wakeQueue{o: o} }

// seen returns the newest state of a pod that the operator has seen.
func (o *operator) seen(name string) *corev1.Pod {
	cached, live := o.cachedPods[name], o.live[name]
	switch {
	case o.live == nil || cached != nil && versionOf(cached) >= o.liveVersion:
		return cached
	case live == nil:
		return nil
	case cached == nil || versionOf(live) > versionOf(cached):
		return live
	}
	return cached
}

func versionOf(o client.Object) int {
	n, _ := strconv.Atoi(o.GetResourceVersion())
	return n
}

// sync advances the caches by a few events, or by all. Handlers are at most one turn behind.
func (o *operator) sync(all bool) {
	w := o.w
	o.handle()
	if o.lateJob > 0 && !all {
		o.lateJob--
	} else {
		for o.jobPos < len(w.jobLog) && (all || w.chance(70)) {
			o.nextOfJob(o)
		}
	}
	if o.latePods > 0 && !all {
		o.latePods--
	} else {
		o.syncPods(o, func() bool { return all || w.chance(80) })
	}
	if all || w.chance(70) {
		o.handle()
	}
	for _, kind := range sortedKeys(w.objectLog) {
		for o.objectPos[kind] < len(w.objectLog[kind]) && (all || w.chance(50)) {
			o.nextOfObject(kind, o)
		}
	}
}

// relist simulates interrupted watches: the caches list the pods and the job again, and the handlers get one event for
// all changes of an object.
func (o *operator) relist() {
	w := o.w
	o.w.tracef("the watches are interrupted")
	for _, name := range sortedKeys(w.podLog) {
		log, before := w.podLog[name], o.cachedPods[name]
		if o.podPos[name] == len(log) {
			continue
		}
		o.podPos[name] = len(log)
		after := log[len(log)-1]
		if after != nil {
			o.cachedPods[name] = after
		} else {
			delete(o.cachedPods, name)
		}
		if before != nil || after != nil {
			o.podEvent(before, after)
		}
	}
	w.forgetWatched(&o.cache)
	if o.jobPos < len(w.jobLog) {
		before := o.cachedJob()
		o.jobPos = len(w.jobLog)
		o.jobEvent(orNil(before), orNil(o.cachedJob()))
	}
}

// jobEvent passes a change of the job to the predicate and the queue of the operator.
func (o *operator) jobEvent(before, after client.Object) {
	if before == nil || after == nil || o.changes.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		o.wakeAt(o.w.now)
	}
}

// podEvent is a change of a pod. before is nil if the pod was created, and after is nil if it was deleted.
type podEvent struct{ before, after *corev1.Pod }

func (e podEvent) String() string {
	text := func(pod *corev1.Pod) string {
		if pod == nil {
			return "none"
		}
		return fmt.Sprintf("%s v%s %s", pod.UID, pod.ResourceVersion, pod.Status.Phase)
	}
	return text(e.before) + " -> " + text(e.after)
}

// podEvent queues a change of a pod for the operator's handler.
func (o *operator) podEvent(before, after *corev1.Pod) {
	e := podEvent{before, after}
	o.w.tracef("    the cache of operator %d shows %s", o.number, e)
	o.unhandled = append(o.unhandled, e)
}

// handle passes the pod events that the cache shows to the operator's handler.
func (o *operator) handle() {
	for len(o.unhandled) > 0 {
		o.handleNext()
	}
}

// handleNext passes the oldest event to the handler.
func (o *operator) handleNext() {
	e, ctx := o.unhandled[0], context.Background()
	o.unhandled = o.unhandled[1:]
	o.w.tracef("    the handler of operator %d receives %s", o.number, e)
	switch {
	case e.before == nil:
		o.pods.Create(ctx, event.CreateEvent{Object: e.after}, o.queue())
	case e.after == nil:
		o.pods.Delete(ctx, event.DeleteEvent{Object: e.before}, o.queue())
	default:
		o.pods.Update(ctx, event.UpdateEvent{ObjectOld: e.before, ObjectNew: e.after}, o.queue())
	}
}

// wakes holds the predicates for the events of owned objects that enqueue the job, by kind.
var wakes = func() map[string]predicate.Predicate {
	all := map[string]predicate.Predicate{}
	for _, owned := range jobcontroller.OwnedKinds() {
		all[kindOf(owned.Object)] = owned.Wakes
	}
	return all
}()

// objectEvent enqueues the job for an event of an object that it owns, if the predicate of the object's kind accepts
// the event. No such object is deleted.
func (o *operator) objectEvent(kind string, before, after client.Object) {
	if before == nil && wakes[kind].Create(event.CreateEvent{Object: after}) ||
		before != nil && wakes[kind].Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		o.wakeAt(o.w.now)
	}
}

// checkWake fails the world if a running job with a deadline has no reconcile scheduled.
func (o *operator) checkWake() {
	w := o.w
	if o.jobPos < len(w.jobLog) || w.obj == nil || w.job.Deadline == nil {
		return
	}
	if s := w.status; !finished(s) && s.RunMode != batch.RunPause && s.StartTime != nil && !o.wake.After(w.now) {
		w.fail("nothing waits for the deadline %s after %s", w.job.Deadline, s.StartTime)
	}
}

// checkDelete checks that no wanted replica loses a living pod of the right run mode, however the job is scaled.
func (o *operator) checkDelete(pod *corev1.Pod, status *batch.JobStatus) {
	if decided(pod) || pod.DeletionTimestamp != nil || finished(status) {
		return
	}
	if n, has := attemptsOf(status)[pod.Name]; has && attempt(pod) >= n && pod.Annotations[batch.AnnotationRunMode] == string(status.RunMode) {
		o.w.fail("pod %s is alive and wanted, and is deleted", pod.Name)
	}
}
