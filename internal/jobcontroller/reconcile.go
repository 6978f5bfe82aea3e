package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// progressWritesPerSecond bounds the status writes over all jobs that tell of nothing but progress. Each costs an API
// server milliseconds of CPU, which pods that are to start need more.
const progressWritesPerSecond = 10

// API is what a Reconciler reads and writes by.
type API struct {
	// Client reads from the caches, set up as CacheOptions says, and writes.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Statuses writes the statuses of the kind.
	Statuses rest.Interface
	// Recorder gets the events of the jobs.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
}

// limits bound requests over all jobs, whatever their kinds.
type limits struct {
	// inFlight bounds the creations and deletions of pods in flight.
	inFlight *concurrencyLimiter
	// eventReads bounds the reads of events, progress the status writes that may wait.
	eventReads, progress limiter
}

func newLimits() limits {
	return limits{inFlight: newConcurrencyLimiter(), eventReads: newLimiter(eventReadsPerSecond), progress: newLimiter(progressWritesPerSecond)}
}

// Reconciler handles the jobs of one kind: it observes a job, has the engine decide and actuates the plan.
type Reconciler struct {
	kind   kinds.Kind
	opts   Options
	cached client.Reader
	live   client.Reader
	clock  clock.PassiveClock
	fence  leaderFence
	store  *expectationStore
	// progress bounds status writes that may wait, over all jobs.
	progress limiter
	observer observer
	actuator actuator
}

// NewReconciler returns the reconciler of a kind for those who have no manager. It has limits of its own.
func NewReconciler(kind kinds.Kind, opts Options, api API) *Reconciler {
	return newReconciler(kind, opts, api, newLimits())
}

func newReconciler(kind kinds.Kind, opts Options, api API, limits limits) *Reconciler {
	if opts.MaxInFlightPerJob == 0 {
		opts.MaxInFlightPerJob = defaultMaxInFlightPerJob
	}
	r := &Reconciler{kind: kind, opts: opts, cached: api.Client, live: api.Live, clock: api.Clock,
		store: newExpectationStore(api.Clock), progress: limits.progress}
	r.observer = observer{kind: kind, engine: opts.Engine, cached: api.Client, live: api.Live, fence: &r.fence,
		eventReads: limits.eventReads, clock: api.Clock}
	r.actuator = actuator{kind: kind, client: api.Client, live: api.Live, statuses: api.Statuses, recorder: api.Recorder,
		inFlight: limits.inFlight, maxPerJob: opts.MaxInFlightPerJob, clock: api.Clock}
	return r
}

// Reconcile is one pass over one job. Any error leaves the rest to the next pass, because every pass starts from a fresh observation.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.fence.set(ctx, r.live, r.kind); err != nil {
		return reconcile.Result{}, err
	}
	obj := r.kind.New()
	if err := r.cached.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.store.forget(req.NamespacedName)
			return reconcile.Result{}, nil
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
	plan, err := r.decide(ctx, job, seen, exp)
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
	switch err := r.actuator.actuate(ctx, obj, job, plan, exp); {
	case errors.Is(err, errStale):
		log.FromContext(ctx).V(1).Info("the cache is behind", "job", req.String())
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	case errors.Is(err, errNameTaken):
		log.FromContext(ctx).V(1).Info("a name that the job needs is taken", "job", req.String(), "refusal", exp.refusals)
		return reconcile.Result{RequeueAfter: sooner(nameDelay(&seen), sooner(plan.RequeueAfter, exp.forgetAfter(seen.Now)))}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: sooner(plan.RequeueAfter, exp.forgetAfter(seen.Now))}, nil
}

// nameDelay returns the time until a pass asks again for a name that is taken. No event tells that the name is free, because
// the object is not the job's. The pass that shows the refusal on the job comes at once.
func nameDelay(seen *engine.Seen) time.Duration {
	if len(seen.Refusals) == 0 {
		return retryFirst
	}
	return nameTakenDelay
}

// nameTakenDelay is the time between two passes of a job that needs a name which is taken.
const nameTakenDelay = 2 * time.Second

// decide has the engine decide, on pods that are read from the API server itself where it asks for that.
func (r *Reconciler) decide(ctx context.Context, job *engine.Job, seen engine.Seen, exp *expectations) (engine.Plan, error) {
	plan := engine.Next(job, seen, r.opts.Engine)
	if plan.Refresh {
		view, err := r.observer.readLive(ctx, job)
		if err != nil {
			return plan, err
		}
		exp.live = view
		seen.Pods, seen.Live, seen.Now = view.list(), true, r.clock.Now()
		plan = engine.Next(job, seen, r.opts.Engine)
	}
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

// progressDelay is the time after which a status write that had to wait is tried again.
const progressDelay = time.Second

// staleDelay is the time that a cache gets to catch up after it was found to be behind.
const staleDelay = 50 * time.Millisecond

// convert returns the normal form of an object, and what is wrong with the object for the engine to judge.
func (r *Reconciler) convert(obj kinds.Object) *engine.Job {
	job := r.kind.Convert(obj)
	if r.opts.ClusterDomain != "" {
		job.ClusterDomain = r.opts.ClusterDomain
	}
	if faults := r.kind.Validate(obj, r.opts.Limits); len(faults) > 0 {
		job.Invalid = faults.ToAggregate().Error()
	}
	return job
}
