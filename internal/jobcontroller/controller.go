// Package jobcontroller observes jobs and executes what the engine decides about them. Reconcile (reconcile.go)
// observes a job (observe.go), adds what this process has written and the caches do not show yet (expectations.go),
// calls the engine, and executes its plan (actuate.go). The package decides nothing about jobs itself. Start reading at
// Reconcile.
package jobcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/metrics"
	"tensorstack.dev/batch/internal/tracing"
)

// The permissions for jobs themselves are in zz_generated.rbac.go.
//
// +kubebuilder:rbac:groups=scheduler.tensorstack.dev,resources=podgroups,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// workers is the number of jobs of each kind that are reconciled concurrently. It is high, because a pass waits for the
// API server most of the time.
const workers = 32

// firstRetry is the delay after a failed pass. The delay doubles with each consecutive failure, up to maxRetry.
const firstRetry, maxRetry = 20 * time.Millisecond, 30 * time.Second

// Retries returns the rate limiter that delays passes after failed ones.
func Retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, maxRetry)
}

// Owned is a kind of object that a job owns.
type Owned struct {
	// Object is an empty object of the kind.
	Object client.Object
	// Wakes selects the events of these objects after which the job must be reconciled.
	Wakes predicate.Predicate
	// OnlyMetadata is true if the cache holds only the metadata of such objects.
	OnlyMetadata bool
}

// OwnedKinds returns the kinds of object that a job owns, apart from pods.
func OwnedKinds() []Owned {
	return []Owned{
		{Object: &corev1.Service{}, Wakes: deletions(), OnlyMetadata: true},
		{Object: &scheduling.PodGroup{}, Wakes: predicate.Funcs{}},
	}
}

func (o *Owned) options() []builder.OwnsOption {
	options := []builder.OwnsOption{builder.WithPredicates(o.Wakes)}
	if o.OnlyMetadata {
		options = append(options, builder.OnlyMetadata)
	}
	return options
}

// Options are the settings of the controllers.
type Options struct {
	// Engine holds the settings of the engine. Zero fields mean the engine's defaults.
	Engine engine.Config
	// Limits are the limits that every job must respect.
	Limits kinds.Limits
	// ClusterDomain is the DNS domain of the cluster. The default is "cluster.local".
	ClusterDomain string
	// Clock is the clock of the controllers. The default is the clock of the system.
	Clock clock.PassiveClock
	// Spans records traces of job starts; nil disables tracing.
	Spans *tracing.Recorder
}

// Controllers are the controllers of all kinds of job. They share the request limits.
type Controllers struct {
	mgr      ctrl.Manager
	opts     Options
	recorder Recorder
	limits   limits
	// indexed is true once the cache has the index of pods by job.
	indexed bool
}

// New returns the controllers of a manager, to which Add adds each kind of job. It adds the recorder of events to the
// manager.
func New(ctx context.Context, mgr ctrl.Manager, opts Options) (*Controllers, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	recorder, err := newRecorder(ctx, mgr)
	if err != nil {
		return nil, err
	}
	return &Controllers{mgr: mgr, opts: opts, recorder: recorder, limits: newLimits()}, nil
}

// Add adds the controller of a kind and the collector of its metrics to the manager. It must not be called
// concurrently.
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
	r := newReconciler(kind, c.opts, API{
		Client: c.mgr.GetClient(), Live: c.mgr.GetAPIReader(), Statuses: statuses, Recorder: c.recorder, Clock: c.opts.Clock,
	}, c.limits)
	b := builder.ControllerManagedBy(c.mgr).
		Named(kind.Plural).
		For(kind.New(), builder.WithPredicates(r.JobChanges())).
		Watches(&corev1.Pod{}, r.PodHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: Retries()})
	for _, o := range OwnedKinds() {
		b = b.Owns(o.Object, o.options()...)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("adding the controller of %s: %w", kind.Name, err)
	}
	if err := c.mgr.Add(manager.RunnableFunc(metrics.Registered(ctrlmetrics.Registry, newJobCollector(kind, c.mgr.GetClient())))); err != nil {
		return fmt.Errorf("adding the metrics of %s: %w", kind.Name, err)
	}
	return nil
}

// JobChanges returns a predicate that drops an update of a job if the spec is unchanged, the job is not being deleted,
// and the status is the one that this controller wrote last. It passes all other events.
func (r *Reconciler) JobChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectNew.GetDeletionTimestamp() != nil ||
			!r.store.isOwnWrite(client.ObjectKeyFromObject(e.ObjectNew), r.kind.Status(e.ObjectNew))
	}}
}

// deletions returns a predicate that drops creations and updates.
func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
