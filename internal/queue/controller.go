package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulingapply "tensorstack.dev/batch/api/applyconfiguration/scheduler/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/metrics"
)

// +kubebuilder:rbac:groups=scheduler.tensorstack.dev,resources=queues,verbs=create;list;watch;use
// +kubebuilder:rbac:groups=scheduler.tensorstack.dev,resources=podgroups,verbs=list;watch
// +kubebuilder:rbac:groups=scheduler.tensorstack.dev,resources=queues/status;podgroups/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// The operator may use all queues, because it creates the groups and pods of jobs. Admission checks the right of a
// job's user to the queue.

const (
	// fieldManager is the field manager of the status of queues and of this package's part of the status of groups.
	fieldManager = "t9k-operator-queue"
	// delay is how long the controllers collect changes of an object before they reconcile it.
	delay = 300 * time.Millisecond

	// workers is the number of groups, and also of queues, that are reconciled concurrently.
	workers = 4

	// byGroup and byQueue are the names of the indexes by group and by queue.
	byGroup, byQueue = "group", "queue"
)

// reconciler reconciles queues and groups. It reads pods from caches of its own, because the manager's cache holds only
// the pods of jobs.
type reconciler struct {
	client client.Client
	// pods is the cache of the pods of the t9k-scheduler.
	pods cache.Cache
	// foreignPods is the cache of the pods of other schedulers that name a queue.
	foreignPods cache.Cache
	shapes      *Shapes
	// began is the time at which this process first reconciled a queue; nil before that.
	began atomic.Pointer[time.Time]
}

// Add adds the controllers of groups and queues to a manager, with their caches and metrics, and a runnable that
// creates the initial queues.
func Add(ctx context.Context, mgr ctrl.Manager, shapes *Shapes, initial []client.Object) error {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.schedulerName", scheduling.SchedulerName), Transform: trim}}})
	if err != nil {
		return fmt.Errorf("making a cache of pods: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return fmt.Errorf("adding the cache of pods: %w", err)
	}
	named, err := labels.NewRequirement(scheduling.LabelQueue, selection.Exists, nil)
	if err != nil {
		return fmt.Errorf("selecting the pods that name a queue: %w", err)
	}
	foreign, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Field: fields.OneTermNotEqualSelector("spec.schedulerName", scheduling.SchedulerName),
			Label: labels.NewSelector().Add(*named), Transform: trim}}})
	if err != nil {
		return fmt.Errorf("making a cache of pods of other schedulers: %w", err)
	}
	if err := mgr.Add(foreign); err != nil {
		return fmt.Errorf("adding the cache of pods of other schedulers: %w", err)
	}
	if err := pods.IndexField(ctx, &corev1.Pod{}, byGroup, func(o client.Object) []string { return []string{o.GetLabels()[scheduling.LabelGroupName]} }); err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	if err := pods.IndexField(ctx, &corev1.Pod{}, byQueue, func(o client.Object) []string { return []string{queueOf(o)} }); err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	if err := foreign.IndexField(ctx, &corev1.Pod{}, byQueue, func(o client.Object) []string { return []string{queueOf(o)} }); err != nil {
		return fmt.Errorf("indexing pods of other schedulers: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &scheduling.PodGroup{}, byQueue, func(o client.Object) []string {
		return []string{o.(*scheduling.PodGroup).Spec.Queue}
	}); err != nil {
		return fmt.Errorf("indexing groups: %w", err)
	}
	k := &reconciler{client: mgr.GetClient(), pods: pods, foreignPods: foreign, shapes: shapes}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return ensure(ctx, mgr.GetClient(), initial) })); err != nil {
		return fmt.Errorf("adding the initial queues: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(metrics.Registered(ctrlmetrics.Registry, newCollector(mgr.GetClient())))); err != nil {
		return fmt.Errorf("adding the metrics of queues: %w", err)
	}
	if err := k.addGroupStatus(mgr); err != nil {
		return fmt.Errorf("adding the controller of groups: %w", err)
	}
	if err := k.addQueueStatus(mgr); err != nil {
		return fmt.Errorf("adding the controller of queues: %w", err)
	}
	return nil
}

// addGroupStatus adds the controller that writes the status of PodGroups.
func (k *reconciler) addGroupStatus(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("podgroup-status").
		Watches(&scheduling.PodGroup{}, later(func(_ context.Context, o client.Object) []types.NamespacedName {
			return []types.NamespacedName{client.ObjectKeyFromObject(o)}
		})).
		WatchesRawSource(source.Kind(k.pods, client.Object(&corev1.Pod{}), later(func(_ context.Context, o client.Object) []types.NamespacedName { return groupsOf(o) }))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).Complete(reconcile.Func(k.group))
}

// addQueueStatus adds the controller that writes the status of queues and ends the pods of queues that are too old.
func (k *reconciler) addQueueStatus(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("queue-status").
		Watches(&scheduling.Queue{}, later(func(_ context.Context, o client.Object) []types.NamespacedName {
			return []types.NamespacedName{{Name: o.GetName()}}
		})).
		Watches(&scheduling.PodGroup{}, later(func(_ context.Context, o client.Object) []types.NamespacedName {
			return []types.NamespacedName{{Name: o.(*scheduling.PodGroup).Spec.Queue}}
		})).
		WatchesRawSource(source.Kind(k.pods, client.Object(&corev1.Pod{}), later(k.queuesOf))).
		WatchesRawSource(source.Kind(k.foreignPods, client.Object(&corev1.Pod{}), later(func(_ context.Context, o client.Object) []types.NamespacedName {
			return []types.NamespacedName{{Name: queueOf(o)}}
		}))).
		WatchesRawSource(source.Kind(k.shapes.profiles, client.Object(&corev1.ConfigMap{}), later(k.queuesWithProfile))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).Complete(reconcile.Func(k.queue))
}

// later returns an event handler that enqueues the keys that the function of returns for an object, after a delay, so
// that several changes within the delay cause one reconciliation. For an update, it enqueues the keys of the old and of
// the new object.
func later(of func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	add := func(ctx context.Context, o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, key := range of(ctx, o) {
			q.AddAfter(reconcile.Request{NamespacedName: key}, delay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.ObjectOld, q)
			add(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(ctx, e.Object, q)
		},
	}
}

// trim removes the fields of a pod that this package does not read, to save memory in the cache.
func trim(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if mark := expiryCondition(pod); mark != nil {
		out.Status.Conditions = []corev1.PodCondition{*mark}
	}
	for _, c := range pod.Spec.InitContainers {
		out.Spec.InitContainers = append(out.Spec.InitContainers, corev1.Container{Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	for _, c := range pod.Spec.Containers {
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Resources: c.Resources})
	}
	return out, nil
}

// group reconciles the status of a group.
func (k *reconciler) group(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	g := &scheduling.PodGroup{}
	if err := k.client.Get(ctx, req.NamespacedName, g); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pods corev1.PodList
	if err := k.pods.List(ctx, &pods, client.InNamespace(req.Namespace), client.MatchingFields{byGroup: req.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the pods of group %s: %w", req.NamespacedName, err)
	}
	s := groupStatus(g, pods.Items, time.Now(), string(uuid.NewUUID()))
	if sameGroup(&g.Status, &s) {
		return reconcile.Result{}, nil
	}
	var into schedulingapply.PodGroupStatusApplyConfiguration
	if err := k.apply(ctx, schedulingapply.PodGroup(g.Name, g.Namespace).WithStatus(&into), &into, s); err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of PodGroup %s: %w", req.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// sameGroup reports whether status a of a group equals status b, apart from the conditions of a that this package does
// not write.
func sameGroup(a, b *scheduling.PodGroupStatus) bool {
	old := a.DeepCopy()
	old.Conditions = nil
	for _, c := range a.Conditions {
		if c.Type == scheduling.SufficientGroupMember {
			old.Conditions = append(old.Conditions, c)
		}
	}
	return apiequality.Semantic.DeepEqual(old, b)
}

// queue reconciles the status of a queue and ends the queue's pods that are too old.
func (k *reconciler) queue(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	q := &scheduling.Queue{}
	if err := k.client.Get(ctx, req.NamespacedName, q); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var groups scheduling.PodGroupList
	if err := k.client.List(ctx, &groups, client.MatchingFields{byQueue: req.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the groups of queue %s: %w", req.Name, err)
	}
	pods, err := k.podsOf(ctx, req.Name, groups.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	shape, err := k.shapes.of(ctx, q)
	if err != nil {
		return reconcile.Result{}, err
	}
	var foreign corev1.PodList
	if err := k.foreignPods.List(ctx, &foreign, client.MatchingFields{byQueue: req.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the pods of other schedulers that name queue %s: %w", req.Name, err)
	}
	now := time.Now()
	if s := queueStatus(q, shape, len(groups.Items), pods, foreign.Items, now); !apiequality.Semantic.DeepEqual(s, q.Status) {
		var into schedulingapply.QueueStatusApplyConfiguration
		if err := k.apply(ctx, schedulingapply.Queue(q.Name).WithStatus(&into), &into, s); err != nil {
			return reconcile.Result{}, fmt.Errorf("writing the status of queue %s: %w", q.Name, err)
		}
	}
	return k.expire(ctx, q, pods, now)
}

// apply writes a status by server-side apply. Fields that the status does not set remain with their other owners. into
// is the status of the apply configuration, and apply fills it. It is no error if the object does not exist.
func (k *reconciler) apply(ctx context.Context, configuration runtime.ApplyConfiguration, into, status any) error {
	data, err := json.Marshal(status)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return err
	}
	return client.IgnoreNotFound(k.client.Status().Apply(ctx, configuration, client.FieldOwner(fieldManager), client.ForceOwnership))
}
