// Package jobcontroller is the one place that reads and writes what belongs to jobs. It gathers what can be seen of a job,
// has the engine decide, and carries the plan out.
package jobcontroller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// The permissions for jobs themselves are in zz_generated.rbac.go.
//
// +kubebuilder:rbac:groups=scheduler.tensorstack.dev,resources=podgroups,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// workers is the number of jobs that are handled at once. Each waits for the API server most of its time.
const workers = 32

// progressWrites bounds the status writes over all jobs, per second, that tell of nothing but progress. Each costs an API
// server milliseconds of CPU, which pods that are to start need more.
const progressWrites = 10

// A pass that failed is tried again after retryFirst, doubling up to retryMost.
const retryFirst, retryMost = 20 * time.Millisecond, 30 * time.Second

// Options are the settings of the controllers.
type Options struct {
	Engine engine.Config
	// Limits are those that jobs are held to.
	Limits kinds.Limits
	// ClusterDomain is the DNS domain of the cluster. Defaults to "cluster.local".
	ClusterDomain string
}

// Controllers are those of all kinds of job. They share limits of requests.
type Controllers struct {
	mgr             ctrl.Manager
	opts            Options
	recorder        events.EventRecorder
	inFlight        *concurrencyLimiter
	looks, progress limiter
	// indexed is true once pods are found by their job.
	indexed bool
}

// New makes the controllers of a manager. None runs yet.
func New(ctx context.Context, mgr ctrl.Manager, opts Options) (*Controllers, error) {
	recorder, err := newRecorder(ctx, mgr)
	if err != nil {
		return nil, err
	}
	return &Controllers{mgr: mgr, opts: opts, recorder: recorder, inFlight: newConcurrencyLimiter(),
		looks: newLimiter(warningLooks), progress: newLimiter(progressWrites)}, nil
}

// Add adds the controller of a kind to the manager. It is not called twice at once.
func (c *Controllers) Add(ctx context.Context, kind kinds.Kind) error {
	if !c.indexed {
		if err := indexPods(ctx, c.mgr); err != nil {
			return err
		}
		c.indexed = true
	}
	statuses, err := statusClient(c.mgr, kind)
	if err != nil {
		return err
	}
	r := &reconciler{
		kind: kind, opts: c.opts, client: c.mgr.GetClient(), live: c.mgr.GetAPIReader(), statuses: statuses,
		recorder: c.recorder, memories: newMemories(), inFlight: c.inFlight, looks: c.looks, progress: c.progress,
	}
	err = builder.ControllerManagedBy(c.mgr).
		Named(kind.Plural).
		For(kind.New(), builder.WithPredicates(r.changes())).
		Watches(&corev1.Pod{}, r.podHandler()).
		Owns(&corev1.Service{}, builder.OnlyMetadata, builder.WithPredicates(deletions())).
		Owns(&scheduling.PodGroup{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the controller of %s: %w", kind.Name, err)
	}
	return nil
}

// reconciler handles the jobs of one kind.
type reconciler struct {
	kind     kinds.Kind
	opts     Options
	client   client.Client
	live     client.Reader
	statuses rest.Interface
	recorder events.EventRecorder
	memories *memories
	reign    reign
	// inFlight bounds the creations and deletions of pods in flight over all jobs.
	inFlight *concurrencyLimiter
	// looks bounds the looks at events over all jobs.
	looks limiter
	// progress bounds status writes that may wait, over all jobs.
	progress limiter
}

// Reconcile is one pass over one job. Any error leaves the rest to the next pass, which starts from what is seen then.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.reign.begin(ctx, r.live, r.kind); err != nil {
		return reconcile.Result{}, err
	}
	obj := r.kind.New()
	if err := r.client.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.memories.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.kind.Name, req, err)
	}
	m := r.memories.of(req.NamespacedName, obj.GetUID())
	obj = m.newest(obj)
	job := r.convert(obj)
	seen, err := r.read(ctx, obj, job, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan, err := r.decide(ctx, job, seen, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	m.dropRefusals(seen.Status, &plan)
	if waits := m.waits(plan.CanWait, seen.Now); plan.CanWait > 0 {
		if !r.progress.Allow() && waits > 0 {
			return reconcile.Result{RequeueAfter: sooner(sooner(min(progressDelay, waits), plan.RequeueAfter), m.forgetAfter(seen.Now))}, nil
		}
		defer r.progress.since(time.Now())
	}
	switch err := r.apply(ctx, obj, job, plan, m); {
	case errors.Is(err, errStale):
		log.FromContext(ctx).V(1).Info("the cache is behind", "job", req.String())
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	case errors.Is(err, errNameTaken):
		log.FromContext(ctx).V(1).Info("a name that the job needs is taken", "job", req.String(), "refusal", m.refusals)
		return reconcile.Result{RequeueAfter: sooner(nameDelay(&seen), sooner(plan.RequeueAfter, m.forgetAfter(seen.Now)))}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: sooner(plan.RequeueAfter, m.forgetAfter(seen.Now))}, nil
}

// convert returns the normal form of an object, and what is wrong with the object for the engine to judge.
func (r *reconciler) convert(obj kinds.Object) *engine.Job {
	job := r.kind.Convert(obj)
	if r.opts.ClusterDomain != "" {
		job.ClusterDomain = r.opts.ClusterDomain
	}
	if faults := r.kind.Validate(obj, r.opts.Limits); len(faults) > 0 {
		job.Invalid = faults.ToAggregate().Error()
	}
	return job
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
func (r *reconciler) decide(ctx context.Context, job *engine.Job, seen engine.Seen, m *memory) (engine.Plan, error) {
	plan := engine.Next(job, seen, r.opts.Engine)
	if plan.Refresh {
		view, err := r.readLive(ctx, job)
		if err != nil {
			return plan, err
		}
		m.live = view
		seen.Pods, seen.Live, seen.Now = view.list(), true, time.Now()
		plan = engine.Next(job, seen, r.opts.Engine)
	}
	if !plan.Contested {
		m.contestedSince = time.Time{}
	} else if m.contestedSince.IsZero() {
		m.contestedSince = seen.Now
	}
	return plan, nil
}

// sooner is the shorter of two delays, of which 0 stands for never.
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

// changes lets through what others change. The controller's own status writes come back as updates too and need no further
// pass.
func (r *reconciler) changes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectNew.GetDeletionTimestamp() != nil ||
			!r.memories.isEcho(client.ObjectKeyFromObject(e.ObjectNew), r.kind.Status(e.ObjectNew))
	}}
}

// deletions lets through nothing but deletions.
func deletions() predicate.Predicate {
	no := false
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return no },
		UpdateFunc: func(event.UpdateEvent) bool { return no },
	}
}
