// Package jobcontroller is the one place that reads and writes what belongs to jobs. Reconcile (reconcile.go) observes a job
// (observe.go), corrects what the caches show by what this process has written (expectations.go), has the engine decide, and
// actuates the plan (actuate.go). It decides nothing about jobs itself.
package jobcontroller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
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

// A pass that failed is tried again after retryFirst, doubling up to retryMost.
const retryFirst, retryMost = 20 * time.Millisecond, 30 * time.Second

// Options are the settings of the controllers.
type Options struct {
	Engine engine.Config
	// Limits are those that jobs are held to.
	Limits kinds.Limits
	// ClusterDomain is the DNS domain of the cluster. Defaults to "cluster.local".
	ClusterDomain string
	// MaxInFlightPerJob bounds the creations and deletions of pods of one job in flight. Default 32.
	MaxInFlightPerJob int
}

// Controllers are those of all kinds of job. They share limits of requests.
type Controllers struct {
	mgr      ctrl.Manager
	opts     Options
	recorder events.EventRecorder
	limits   limits
	// indexed is true once pods are found by their job.
	indexed bool
}

// New makes the controllers of a manager. None runs yet.
func New(ctx context.Context, mgr ctrl.Manager, opts Options) (*Controllers, error) {
	recorder, err := newRecorder(ctx, mgr)
	if err != nil {
		return nil, err
	}
	return &Controllers{mgr: mgr, opts: opts, recorder: recorder, limits: newLimits()}, nil
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
	r := newReconciler(kind, c.opts, API{
		Client: c.mgr.GetClient(), Live: c.mgr.GetAPIReader(), Statuses: statuses, Recorder: c.recorder, Clock: clock.RealClock{},
	}, c.limits)
	err = builder.ControllerManagedBy(c.mgr).
		Named(kind.Plural).
		For(kind.New(), builder.WithPredicates(r.JobChanges())).
		Watches(&corev1.Pod{}, r.PodHandler()).
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

// JobChanges lets through the updates of jobs that need a pass: those that others make. The controller's own status writes come back
// as updates too and need no further pass.
func (r *Reconciler) JobChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectNew.GetDeletionTimestamp() != nil ||
			!r.store.isOwnWrite(client.ObjectKeyFromObject(e.ObjectNew), r.kind.Status(e.ObjectNew))
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
