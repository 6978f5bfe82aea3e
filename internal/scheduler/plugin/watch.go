package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/planner"
	"tensorstack.dev/batch/internal/scheduler/rights"
	"tensorstack.dev/batch/internal/scheduler/writer"
)

// watches lists the event handlers that have been added to informers.
type watches []cache.ResourceEventHandlerRegistration

// add adds an event handler to an informer.
func (w *watches) add(informer interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}, handler cache.ResourceEventHandler) error {
	r, err := informer.AddEventHandler(handler)
	if err == nil {
		*w = append(*w, r)
	}
	return err
}

// synced reports whether all handlers have received the objects that existed when they were added.
func (w *watches) synced() bool {
	for _, r := range *w {
		if !r.HasSynced() {
			return false
		}
	}
	return true
}

// watch creates the planner, sends it all relevant events, and starts the writer and the reviews of rights that the
// planner uses.
func (p *Plugin) watch(ctx context.Context, settings *configv1alpha1.T9kGangArgs) error {
	config := rest.CopyConfig(p.handle.KubeConfig())
	config.ContentType, config.AcceptContentTypes = "", ""
	scheme := runtime.NewScheme()
	if err := scheduling.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	w, informers := &watches{}, p.handle.SharedInformerFactory().Core().V1()
	out := writer.New(c, p.handle.ClientSet(), informers.Pods().Lister(), p.spans)
	answered := func(q rights.Question, allowed bool) { p.planner.Answered(q, allowed) }
	who := rights.New(informers.Namespaces().Lister(), p.handle.ClientSet().AuthorizationV1().SubjectAccessReviews(), answered)
	p.planner = planner.New(
		planner.Config{ReserveAfter: settings.ReserveAfter.Duration, Grace: settings.GangGracePeriod.Duration, TopologyLabel: settings.TopologyLabel, Traced: p.spans.Enabled()},
		clock.RealClock{},
		planner.Sources{Nodes: informers.Nodes().Lister(), Synced: w.synced, WaitingPod: p.handle.GetWaitingPod, Rights: who}, out)
	if err := p.watchCore(w); err != nil {
		return err
	}
	if err := p.watchFinished(ctx, config, w); err != nil {
		return err
	}
	if err := p.watchObjects(ctx, config, scheme, w); err != nil {
		return err
	}
	p.background.Go(func() { out.Run(ctx) })
	p.background.Go(func() { who.Run(ctx) })
	return nil
}

// watchCore watches pods, nodes and namespaces with the scheduler's informers.
func (p *Plugin) watchCore(w *watches) error {
	pl, informers := p.planner, p.handle.SharedInformerFactory().Core().V1()
	if err := w.add(informers.Pods().Informer(), handlers(pl.PodSeen, pl.PodGone)); err != nil {
		return err
	}
	nodes := handlers(func(n *corev1.Node) { pl.NodeSeen(nil, n) }, pl.NodeGone)
	nodes.UpdateFunc = func(old, o any) { pl.NodeSeen(old.(*corev1.Node), o.(*corev1.Node)) }
	if err := w.add(informers.Nodes().Informer(), nodes); err != nil {
		return err
	}
	return w.add(informers.Namespaces().Informer(), cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, o any) {
		if !apiequality.Semantic.DeepEqual(old.(*corev1.Namespace).Labels, o.(*corev1.Namespace).Labels) {
			pl.NamespaceLabeled()
		}
	}})
}

// watchFinished watches the finished members of groups, which the scheduler's own informer leaves out.
func (p *Plugin) watchFinished(ctx context.Context, config *rest.Config, w *watches) error {
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(c, 0, "", func(o *metav1.ListOptions) {
		o.LabelSelector = scheduling.LabelGroupName
		o.FieldSelector = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
	})
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	if err := w.add(informer, handlers(p.planner.FinishedSeen, p.planner.FinishedGone)); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	p.background.Go(func() {
		<-ctx.Done()
		factory.Shutdown()
	})
	return nil
}

// watchObjects watches PodGroups and Queues.
func (p *Plugin) watchObjects(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, w *watches) error {
	objects, err := ctrlcache.New(config, ctrlcache.Options{Scheme: scheme, DefaultTransform: ctrlcache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	groups, err := objects.GetInformer(ctx, &scheduling.PodGroup{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if err := w.add(groups, handlers(p.planner.PodGroupSeen, p.planner.PodGroupGone)); err != nil {
		return err
	}
	queues, err := objects.GetInformer(ctx, &scheduling.Queue{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if err := w.add(queues, handlers(p.planner.QueueSeen, p.planner.QueueGone)); err != nil {
		return err
	}
	p.background.Go(func() { _ = objects.Start(ctx) }) // Start fails only if the cache was started before
	return nil
}

// handlers returns event handlers that call seen with each new state of an object, and gone with its last state.
func handlers[T metav1.Object](seen, gone func(T)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { seen(o.(T)) },
		UpdateFunc: func(old, o any) {
			// After an interrupted watch, an informer reports an object that was deleted and created again as updated.
			if last := old.(T); last.GetUID() != o.(T).GetUID() {
				gone(last)
			}
			seen(o.(T))
		},
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
