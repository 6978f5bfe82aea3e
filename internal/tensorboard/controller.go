package tensorboard

import (
	"context"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	tensorboard "tensorstack.dev/batch/api/tensorboard/v1beta1"
	"tensorstack.dev/batch/internal/tensorboard/board"
)

// +kubebuilder:rbac:groups=tensorstack.dev,resources=tensorboards,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups=tensorstack.dev,resources=tensorboards/status,verbs=update
// +kubebuilder:rbac:groups=tensorstack.dev,resources=tensorboards/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// The controllers of AddLink also need permissions on jobs, which internal/jobcontroller requests.
//
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// workers is the number of objects that each controller reconciles concurrently.
const workers = 4

// staleDelay is the delay before a retry if a cache was stale or another client wrote first. refusedDelay is the delay
// before a retry if the API server refused an object or if the name of an object is taken.
const (
	staleDelay   = 50 * time.Millisecond
	refusedDelay = 15 * time.Second
)

// Options are the settings of the controllers.
type Options struct {
	Board    board.Settings
	Idleness board.Idleness
}

// Add adds the controller of TensorBoards to a manager.
func Add(mgr ctrl.Manager, opts Options) error {
	opts.Board.Proxy = opts.Idleness.After > 0
	owned, err := newCache(mgr)
	if err != nil {
		return err
	}
	r := &reconciler{
		opts: opts, client: mgr.GetClient(), live: mgr.GetAPIReader(), owned: owned, now: time.Now,
		recorder: mgr.GetEventRecorder("t9k-operator"), http: probeClient(),
	}
	err = builder.ControllerManagedBy(mgr).
		Named("tensorboards").
		For(&tensorboard.TensorBoard{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(ownedObjects(owned, &appsv1.Deployment{})).
		WatchesRawSource(ownedObjects(owned, &corev1.Service{})).
		WatchesRawSource(ownedObjects(owned, &corev1.Pod{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the controller of TensorBoards: %w", err)
	}
	return nil
}

// newCache returns a cache of the objects that belong to TensorBoards, and adds it to the manager. The manager's own
// cache holds only the pods and Services of jobs.
func newCache(mgr ctrl.Manager) (cache.Cache, error) {
	ours, err := labels.NewRequirement(tensorboard.LabelTensorBoard, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting what belongs to TensorBoards: %w", err)
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultLabelSelector: labels.NewSelector().Add(*ours), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of what belongs to TensorBoards: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("adding the cache of what belongs to TensorBoards: %w", err)
	}
	return c, nil
}

// ownedObjects returns a source that enqueues, for each event of an object of o's type, the TensorBoard named in the
// label of the object.
func ownedObjects[T client.Object](c cache.Cache, o T) source.Source {
	return source.Kind(c, o, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o T) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{
			Namespace: o.GetNamespace(), Name: o.GetLabels()[tensorboard.LabelTensorBoard]}}}
	}))
}

// reconciler reconciles TensorBoards. live reads from the API server, and owned from the cache of the objects that
// belong to TensorBoards.
type reconciler struct {
	opts     Options
	client   client.Client
	live     client.Reader
	owned    client.Reader
	recorder events.EventRecorder
	now      func() time.Time
	http     *http.Client
}

// Reconcile makes one pass over one TensorBoard. A failed pass need not be undone, because every pass starts from a
// fresh observation.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	tb := &tensorboard.TensorBoard{}
	if err := r.client.Get(ctx, req.NamespacedName, tb); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("reading TensorBoard %s: %w", req, err)
	}
	if tb.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	seen, err := r.observe(ctx, tb)
	if err != nil {
		return retryIfStale(err)
	}
	next := board.Observe(tb, seen, r.opts.Idleness)
	if next.Suspend {
		return retryIfStale(r.suspend(ctx, tb))
	}
	if err := r.write(ctx, tb, next.Status); err != nil {
		return retryIfStale(err)
	}
	wait := next.ProbeAfter
	if seen.Refusal != nil && seen.Refusal.Reason != tensorboard.ReasonInvalidSpec {
		wait = refusedDelay
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// observe creates or updates the objects of a TensorBoard, queries its pod, and returns the observed state.
func (r *reconciler) observe(ctx context.Context, tb *tensorboard.TensorBoard) (board.Seen, error) {
	seen := board.Seen{}
	var err error
	if seen.Deployment, seen.Refusal, err = r.ensure(ctx, tb); err != nil {
		return seen, err
	}
	var pods corev1.PodList
	if err := r.owned.List(ctx, &pods, client.InNamespace(tb.Namespace), client.MatchingLabels{tensorboard.LabelTensorBoard: tb.Name}); err != nil {
		return seen, fmt.Errorf("listing the pods of TensorBoard %s/%s: %w", tb.Namespace, tb.Name, err)
	}
	seen.Pod = board.Choose(pods.Items)
	if r.opts.Board.Proxy && !board.Suspended(tb) && board.Ready(seen.Pod) {
		seen.Activity, seen.ProbeError = r.fetchActivity(ctx, seen.Pod)
	}
	seen.Now = r.now()
	return seen, nil
}

// write updates the status if it has changed, and records an event if the reason of the condition Ready has changed.
// The update contains the resourceVersion that was read, so it fails if another client has changed the TensorBoard.
func (r *reconciler) write(ctx context.Context, tb *tensorboard.TensorBoard, status tensorboard.TensorBoardStatus) error {
	if equality.Semantic.DeepEqual(tb.Status, status) {
		return nil
	}
	old := board.ReadyCondition(tb)
	next := tb.DeepCopy()
	next.Status = status
	if err := r.client.Status().Update(ctx, next); err != nil {
		return fmt.Errorf("writing the status of TensorBoard %s/%s: %w", tb.Namespace, tb.Name, err)
	}
	if c := board.ReadyCondition(next); c.Reason != old.Reason {
		kind := corev1.EventTypeNormal
		if board.Wrong(c) {
			kind = corev1.EventTypeWarning
		}
		r.recorder.Eventf(tb, nil, kind, c.Reason, c.Reason, "%s", c.Message)
		log.FromContext(ctx).Info("TensorBoard condition changed", "tensorBoard", klog.KObj(tb), "reason", c.Reason, "message", c.Message)
	}
	return nil
}

// suspend sets spec.suspend of an idle TensorBoard. It fails with a conflict if the TensorBoard has changed since it
// was read.
func (r *reconciler) suspend(ctx context.Context, tb *tensorboard.TensorBoard) error {
	yes := true
	next := tb.DeepCopy()
	next.Spec.Suspend = &yes
	if err := r.client.Patch(ctx, next, client.MergeFromWithOptions(tb, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("suspending TensorBoard %s/%s: %w", tb.Namespace, tb.Name, err)
	}
	r.recorder.Eventf(tb, nil, corev1.EventTypeNormal, "IdleReclaimed", "Suspend", "It had been idle for %s and is suspended.", r.opts.Idleness.SuspendAfter)
	log.FromContext(ctx).Info("Suspended an idle TensorBoard", "tensorBoard", klog.KObj(tb), "idleFor", r.opts.Idleness.SuspendAfter)
	return nil
}

// retryIfStale requests a retry after staleDelay if err shows that a cache was stale or another client wrote first. It
// returns any other error unchanged.
func retryIfStale(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil
	}
	return reconcile.Result{}, err
}
