package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// progressWritesPerSecond limits, over all jobs, the status writes that report only progress. Each costs an API server
// milliseconds of CPU, which starting pods need more.
const progressWritesPerSecond = 10

// API is the set of clients of a Reconciler.
type API struct {
	// Client reads from the caches, which CacheOptions configures, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Statuses writes the statuses of the kind.
	Statuses rest.Interface
	// Recorder receives the events of the jobs.
	Recorder Recorder
	// Clock is the clock of the passes.
	Clock clock.PassiveClock
}

// limits are the limits of requests over all jobs of all kinds.
type limits struct {
	// inFlight limits the concurrent requests that create, delete or stop pods.
	inFlight *concurrencyLimiter
	// perJob is the largest number of such requests in flight for one job.
	perJob int
	// eventReads limits the reads of events, and progress the status writes that may wait.
	eventReads, progress limiter
}

func newLimits() limits {
	return limits{inFlight: newConcurrencyLimiter(), perJob: maxInFlightPerJob,
		eventReads: newLimiter(eventReadsPerSecond), progress: newLimiter(progressWritesPerSecond)}
}

// Reconciler handles the jobs of one kind: it observes a job, calls the engine and executes the plan.
type Reconciler struct {
	kind   kinds.Kind
	opts   Options
	cached client.Reader
	live   client.Reader
	clock  clock.PassiveClock
	fence  leaderFence
	store  *expectationStore
	// progress limits the status writes that may wait, over all jobs.
	progress limiter
	observer observer
	actuator actuator
}

// NewReconciler returns the reconciler of a kind for callers without a manager. It has its own limits and sends one
// request at a time, so that its actions depend only on the answers that it receives.
func NewReconciler(kind kinds.Kind, opts Options, api API) *Reconciler {
	limits := newLimits()
	limits.perJob = 1
	return newReconciler(kind, opts, api, limits)
}

func newReconciler(kind kinds.Kind, opts Options, api API, limits limits) *Reconciler {
	r := &Reconciler{kind: kind, opts: opts, cached: api.Client, live: api.Live, clock: api.Clock,
		store: newExpectationStore(api.Clock), progress: limits.progress}
	r.observer = observer{kind: kind, engine: opts.Engine, cached: api.Client, live: api.Live, fence: &r.fence,
		eventReads: limits.eventReads, clock: api.Clock}
	r.actuator = actuator{kind: kind, client: api.Client, live: api.Live, statuses: api.Statuses, recorder: api.Recorder,
		inFlight: limits.inFlight, maxPerJob: limits.perJob, clock: api.Clock, spans: opts.Spans}
	return r
}

// Reconcile does one pass over one job. After an error, the next pass continues the work, because every pass starts
// from a fresh observation.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.fence.set(ctx, r.live, r.kind); err != nil {
		return reconcile.Result{}, err
	}
	obj := r.kind.New()
	if err := r.cached.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{RequeueAfter: r.store.forget(req.NamespacedName)}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.kind.Name, req, err)
	}
	exp := r.store.of(req.NamespacedName, obj.GetUID())
	obj = exp.newest(obj)
	job := r.convert(obj)
	seen, err := r.observer.observe(ctx, obj, job, exp)
	if err != nil {
		return reconcile.Result{}, err
	}
	if exp.awaitsHandler(&seen) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	plan, err := r.decide(ctx, job, seen, exp)
	if errors.Is(err, errVanished) {
		return reconcile.Result{RequeueAfter: vanishedWait}, nil // an event of the pod usually arrives earlier
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	exp.dropRefusals(seen.Status, &plan)
	if left := exp.delayLeft(plan.MaxDelay, seen.Now); plan.MaxDelay > 0 {
		began := r.clock.Now()
		if !r.progress.AllowN(began, 1) && left > 0 {
			return reconcile.Result{RequeueAfter: sooner(sooner(min(progressDelay, left), plan.RequeueAfter), exp.forgetAfter(seen.Now))}, nil
		}
		defer func() { r.progress.charge(began, r.clock.Now()) }()
	}
	switch err := r.actuator.actuate(ctx, obj, job, seen.Pods, plan, exp); {
	case errors.Is(err, errStale):
		log.FromContext(ctx).V(2).Info("The cache is behind", "job", klog.KRef(req.Namespace, req.Name))
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	case errors.Is(err, errNameTaken), errors.Is(err, errNamespaceTerminating):
		log.FromContext(ctx).V(2).Info("An object of the job cannot be created now", "job", klog.KRef(req.Namespace, req.Name), "refusals", exp.refusals)
		return reconcile.Result{RequeueAfter: sooner(refusalDelay(&seen, err), sooner(plan.RequeueAfter, exp.forgetAfter(seen.Now)))}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: sooner(plan.RequeueAfter, exp.forgetAfter(seen.Now))}, nil
}

// refusalDelay returns the delay before the next pass after a creation that failed with errNameTaken or
// errNamespaceTerminating. No event triggers a pass once the creation can succeed: the object that has the name does
// not belong to the job, and an API server with a stale cache may still show an earlier namespace of the same name,
// which was deleted. The delay after the first refusal is short, because the next pass writes the refusal to the job's
// status.
func refusalDelay(seen *engine.Seen, err error) time.Duration {
	switch {
	case len(seen.Refusals) == 0:
		return firstRetry
	case errors.Is(err, errNamespaceTerminating):
		return maxRetry
	}
	return nameTakenDelay
}

// nameTakenDelay is the time between two passes over a job while another object has a name that the job needs.
const nameTakenDelay = 2 * time.Second

// vanishedWait is the longest time that a pass waits for the watch to show the end of a pod that no longer exists.
const vanishedWait = time.Second

// errVanished means that a pod no longer exists and that the cache does not show its end yet.
var errVanished = errors.New("the cache does not show the end of a pod that has gone")

// awaitsHandler reports whether a pass has to wait for the event handler of pods, for up to vanishedWait for each pod.
// It sets seen.Unconfirmed to the pods in the status that have not ended, that are not among seen.Pods, and whose
// deletion the handler has not received. The pass waits for those of them whose replica is not in the phase Deleted.
func (exp *expectations) awaitsHandler(seen *engine.Seen) bool {
	living, ending := exp.departed.unheard(seen.Status, seen.Pods)
	if len(living)+len(ending) > 0 {
		seen.Unconfirmed = make(map[types.UID]bool, len(living)+len(ending))
	}
	for _, pod := range slices.Concat(living, ending) {
		seen.Unconfirmed[pod] = true
	}
	return exp.unheard.still(living, seen.Now)
}

// decide calls the engine. If the engine asks for it, decide reads the pods from the API server, keeps the view in
// exp.live, and calls the engine again. It returns errVanished if the watch should first show the end of a pod.
// Otherwise it records in exp what the next call of the engine needs.
func (r *Reconciler) decide(ctx context.Context, job *engine.Job, seen engine.Seen, exp *expectations) (engine.Plan, error) {
	plan := engine.Next(job, seen, r.opts.Engine)
	if plan.Refresh {
		view, err := r.observer.readLive(ctx, job)
		if err != nil {
			return plan, err
		}
		exp.live = view
		if exp.vanished.still(view.vanished(seen.Pods), r.clock.Now()) {
			return plan, errVanished
		}
		seen.Pods, seen.Live, seen.Now = view.list(seen.Pods), true, r.clock.Now()
		plan = engine.Next(job, seen, r.opts.Engine)
	}
	exp.lastPass, exp.ends = seen.Now, plan.Ends
	if !plan.Contested {
		exp.contestedSince = time.Time{}
	} else if exp.contestedSince.IsZero() {
		exp.contestedSince = seen.Now
	}
	return plan, nil
}

// sooner returns the shorter of two delays; zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// progressDelay is the time until a delayed status write is tried again.
const progressDelay = time.Second

// staleDelay is the time that a stale cache gets to catch up.
const staleDelay = 50 * time.Millisecond

// convert returns the engine's form of an object. If the object is invalid, the field Invalid has the errors, which the
// engine handles.
func (r *Reconciler) convert(obj kinds.Object) *engine.Job {
	job := r.kind.Convert(obj)
	if r.opts.ClusterDomain != "" {
		job.ClusterDomain = r.opts.ClusterDomain
	}
	if errs := r.kind.Validate(obj, r.opts.Limits); len(errs) > 0 {
		job.Invalid = errs.ToAggregate().Error()
	}
	return job
}
