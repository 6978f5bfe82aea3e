package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
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

// watch keeps the index by events.
func (p *Plugin) watch(ctx context.Context) error {
	config := rest.CopyConfig(p.handle.KubeConfig())
	config.ContentType, config.AcceptContentTypes = "", ""
	factory := p.handle.SharedInformerFactory()
	p.nodeLister = factory.Core().V1().Nodes().Lister()
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
	if err := add(core.Pods().Informer(), handlers(p.podSeen, p.podGone)); err != nil {
		return err
	}
	nodes := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.index.nodeSeen(nil, o.(*corev1.Node)) },
		UpdateFunc: func(old, o any) { p.index.nodeSeen(old.(*corev1.Node), o.(*corev1.Node)) },
		DeleteFunc: func(any) { p.index.roomMade(true) },
	}
	if err := add(core.Nodes().Informer(), nodes); err != nil {
		return err
	}
	namespaces := cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, o any) { p.index.namespaceSeen(old.(*corev1.Namespace), o.(*corev1.Namespace)) },
	}
	if err := add(core.Namespaces().Informer(), namespaces); err != nil {
		return err
	}
	p.rights = newRights(core.Namespaces().Lister(), p.handle.ClientSet().AuthorizationV1().SubjectAccessReviews(), p.index.answered)
	if err := p.watchFinished(ctx, config, add); err != nil {
		return err
	}
	if err := p.watchObjects(ctx, config, add); err != nil {
		return err
	}
	p.synced = func() bool {
		for _, synced := range registered {
			if !synced() {
				return false
			}
		}
		return true
	}
	return nil
}

func (p *Plugin) podSeen(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		p.arrivals.remove(pod.UID)
	}
	p.index.podSeen(pod)
}

func (p *Plugin) podGone(pod *corev1.Pod) {
	p.arrivals.remove(pod.UID)
	p.index.podGone(pod)
}

type adder = func(interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}, cache.ResourceEventHandler) error

// watchFinished follows the members of groups that have finished, of which the scheduler's own informer says nothing.
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
	if err := add(informer, handlers(p.index.finishedSeen, p.index.finishedGone)); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

// watchObjects follows PodGroups and Queues, and makes the client that writes to them.
func (p *Plugin) watchObjects(ctx context.Context, config *rest.Config, add adder) error {
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
	if err := add(groups, handlers(p.index.podGroupSeen, p.index.podGroupGone)); err != nil {
		return err
	}
	queues, err := objects.GetInformer(ctx, &scheduling.Queue{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if err := add(queues, handlers(p.index.queueSeen, p.index.queueGone)); err != nil {
		return err
	}
	p.conditions = newConditions(c, p.handle.ClientSet(), p.handle.SharedInformerFactory().Core().V1().Pods().Lister())
	p.evictions = newEvictions(p.handle.ClientSet())
	// Nobody waits for these: they end with ctx, and the program with them. What is not done by then the next scheduler does anew,
	// because all of it follows from what is seen.
	go p.conditions.run(ctx)
	go p.evictions.run(ctx)
	go p.rights.reviewQueue.run(ctx, 4)
	go func() { _ = objects.Start(ctx) }()
	return nil
}

// handlers calls seen with each new state of an object, and gone with its last one.
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
