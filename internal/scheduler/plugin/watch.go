package plugin

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// watch sends all relevant events to the planner.
func (p *Plugin) watch(ctx context.Context) error {
	pl := p.planner
	config := rest.CopyConfig(p.handle.KubeConfig())
	config.ContentType, config.AcceptContentTypes = "", ""
	factory := p.handle.SharedInformerFactory()
	pl.nodeLister = factory.Core().V1().Nodes().Lister()
	var registered []func() bool
	add := func(informer interface {
		AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	}, handler cache.ResourceEventHandler) error {
		r, err := informer.AddEventHandler(handler)
		if err == nil {
			registered = append(registered, r.HasSynced)
		}
		return err
	}
	core := factory.Core().V1()
	if err := add(core.Pods().Informer(), handlers(func(pod *corev1.Pod) {
		if ours(pod) || isForeign(pod) {
			pl.inbox.post(func(now time.Time) { pl.podSeen(pod, now) })
		}
	}, posted(pl, pl.podGone))); err != nil {
		return err
	}
	nodes := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { pl.roomMade(true) },
		UpdateFunc: func(old, o any) {
			if !alike(old.(*corev1.Node), o.(*corev1.Node)) {
				pl.roomMade(true)
			}
		},
		DeleteFunc: func(any) { pl.roomMade(true) },
	}
	if err := add(core.Nodes().Informer(), nodes); err != nil {
		return err
	}
	namespaces := cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, o any) { // its labels may now match a queue's namespace selector
			if !apiequality.Semantic.DeepEqual(old.(*corev1.Namespace).Labels, o.(*corev1.Namespace).Labels) {
				pl.roomMade(false)
			}
		},
	}
	if err := add(core.Namespaces().Informer(), namespaces); err != nil {
		return err
	}
	pl.rights = newRights(core.Namespaces().Lister(), p.handle.ClientSet().AuthorizationV1().SubjectAccessReviews(), func(q question, allowed bool) {
		pl.inbox.post(func(now time.Time) {
			pl.rights.answer(q, allowed, now)
			pl.index.answered()
		})
	})
	if err := p.watchFinished(ctx, config, add); err != nil {
		return err
	}
	if err := p.watchObjects(ctx, config, add); err != nil {
		return err
	}
	pl.synced = func() bool {
		for _, synced := range registered {
			if !synced() {
				return false
			}
		}
		return true
	}
	return nil
}

// roomMade posts to the planner that there may be more room. Any goroutine may call it.
func (pl *planner) roomMade(nodes bool) {
	pl.inbox.post(func(time.Time) { pl.index.roomMade(nodes) })
}

// posted returns a function that posts a call of do to the planner.
func posted[T any](pl *planner, do func(o T, now time.Time)) func(T) {
	return func(o T) { pl.inbox.post(func(now time.Time) { do(o, now) }) }
}

type adder = func(interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}, cache.ResourceEventHandler) error

// watchFinished watches the finished members of groups, which the scheduler's own informer leaves out.
func (p *Plugin) watchFinished(ctx context.Context, config *rest.Config, add adder) error {
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(c, 0, "", func(o *metav1.ListOptions) {
		o.LabelSelector = scheduling.LabelGroupName
		o.FieldSelector = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
	})
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	if err := add(informer, handlers(posted(p.planner, p.planner.index.finishedSeen), posted(p.planner, p.planner.index.finishedGone))); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	p.background.Go(func() {
		<-ctx.Done()
		factory.Shutdown()
	})
	return nil
}

// watchObjects watches PodGroups and Queues, and creates the client that writes to them.
func (p *Plugin) watchObjects(ctx context.Context, config *rest.Config, add adder) error {
	pl := p.planner
	scheme := runtime.NewScheme()
	if err := scheduling.AddToScheme(scheme); err != nil {
		return err
	}
	objects, err := ctrlcache.New(config, ctrlcache.Options{Scheme: scheme, DefaultTransform: ctrlcache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	groups, err := objects.GetInformer(ctx, &scheduling.PodGroup{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if err := add(groups, handlers(posted(pl, pl.index.podGroupSeen), posted(pl, pl.index.podGroupGone))); err != nil {
		return err
	}
	queues, err := objects.GetInformer(ctx, &scheduling.Queue{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	queueSeen := func(q *scheduling.Queue, _ time.Time) { pl.index.queueSeen(q) }
	queueGone := func(q *scheduling.Queue, _ time.Time) { pl.index.queueGone(q) }
	if err := add(queues, handlers(posted(pl, queueSeen), posted(pl, queueGone))); err != nil {
		return err
	}
	pl.conditions = newConditions(c, p.handle.ClientSet(), p.handle.SharedInformerFactory().Core().V1().Pods().Lister(), p.spans)
	pl.evictions = newEvictions(p.handle.ClientSet())
	// Unfinished writes may be lost at the end: the next leader derives them again from what it observes.
	p.background.Go(func() { pl.conditions.run(ctx) })
	p.background.Go(func() { pl.evictions.run(ctx) })
	p.background.Go(func() { pl.rights.reviewQueue.run(ctx, 4) })
	p.background.Go(func() { _ = objects.Start(ctx) }) // Start fails only if the cache was started before
	return nil
}

// handlers returns event handlers that call seen with each new state of an object, and gone with its last state.
func handlers[T any](seen, gone func(T)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen(o.(T)) },
		UpdateFunc: func(_, o any) { seen(o.(T)) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if last, ok := o.(T); ok {
				gone(last)
			}
		},
	}
}
