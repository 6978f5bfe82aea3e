package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/tracing"
)

// Name is the name of the plugin.
const Name = "T9kGang"

var everything = labels.Everything()

// Config are the settings of the plugin.
type Config struct {
	// ReserveAfter is how long a group waits before room is reserved for it.
	ReserveAfter time.Duration
	// Grace is how long a gang may stay partly bound before its pods are evicted.
	Grace time.Duration
	// TopologyLabel is the node label that names topology domains; empty if there are none.
	TopologyLabel string
	// Tracing says where traces go; nil is nowhere.
	Tracing *configv1alpha1.Tracing
}

// Plugin is the part that the scheduling framework calls. It asks the planner and has no state of groups of its own.
type Plugin struct {
	handle  fwk.Handle
	planner *planner
	queued  *queuedPods
	// current is the assignment of the running scheduling cycle; nil for a pod of another profile. It belongs to the
	// scheduling goroutine.
	current *assignment

	binder  fwk.BindPlugin
	binding *semaphore.Weighted
	// spans is nil if no traces are wanted.
	spans *tracing.Recorder

	// stop ends the goroutines that the plugin has started. Background counts them.
	stop       context.CancelFunc
	background sync.WaitGroup
}

var (
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PermitPlugin      = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
)

// New returns the plugin of a profile. Its planner runs once the scheduler has been attached.
func New(ctx context.Context, handle fwk.Handle, config Config) (*Plugin, error) {
	binder, err := newBinder(ctx, handle)
	if err != nil {
		return nil, fmt.Errorf("making the default plugin that binds: %w", err)
	}
	p := newPlugin(handle, binder, config, clock.RealClock{})
	if p.spans, err = tracing.NewRecorder(ctx, config.Tracing, "t9k-scheduler"); err != nil {
		return nil, err
	}
	ctx, p.stop = context.WithCancel(ctx)
	if err := p.watch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("watching pods, groups and queues: %w", err), p.Close())
	}
	return p, nil
}

// newPlugin returns a plugin whose planner has an empty index.
func newPlugin(handle fwk.Handle, binder fwk.BindPlugin, config Config, c clock.WithTicker) *Plugin {
	return &Plugin{handle: handle, planner: newPlanner(handle, config, c), queued: &queuedPods{pods: map[types.UID]*corev1.Pod{}},
		binder: binder, binding: semaphore.NewWeighted(bindings), stop: func() {}}
}

// attach makes the scheduler take its pods from the planner, and starts the planner.
func (p *Plugin) attach(ctx context.Context, sched *scheduler.Scheduler, n *nodes) {
	pl := p.planner
	pl.pop = sched.NextPod
	p.connect(sched, n)
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		got := pl.next(ctx, logger)
		p.current = got.assignment
		return got.info, got.err
	}
	ctx, stop := context.WithCancel(ctx)
	also := p.stop
	p.stop = func() { also(); stop() }
	p.background.Go(func() { pl.run(ctx) })
	p.background.Go(func() {
		if err := pl.busy.serve(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The planner's metric is missing")
		}
	})
}

// connect replaces the scheduler's queue by a planningQueue, and gives the planner its nodes.
func (p *Plugin) connect(sched *scheduler.Scheduler, n *nodes) {
	p.planner.nodes, p.planner.queue = n, &planningQueue{sched.SchedulingQueue, p.queued, p.planner}
	sched.SchedulingQueue = p.planner.queue
}

// Close ends the goroutines that the plugin has started, and waits for them. The scheduler calls it after it has
// closed its queue.
func (p *Plugin) Close() error {
	p.stop()
	p.background.Wait()
	return p.spans.Close(context.Background()) // Close of the framework is given no context
}

// factory returns the function by which the scheduler makes the plugin. The function appends each plugin to made.
func factory(made *[]*Plugin) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		settings, err := settingsOf(args)
		if err != nil {
			return nil, err
		}
		p, err := New(ctx, handle, settings)
		if err != nil {
			return nil, err
		}
		*made = append(*made, p)
		return p, nil
	}
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// EventsToRegister names no events, because pods are held back until a plan has a node for them. Without this method,
// the queue would examine each of them at every event.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue holds pods back until a plan has a node for them. A pod enters the queue only for its scheduling cycle,
// or after one has failed.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if p.queued.isTaken(pod.UID) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until its group is planned")
}

// assigned returns the assignment of a pod's scheduling cycle; nil if there is none.
func (p *Plugin) assigned(pod *corev1.Pod) *assignment {
	if p.current == nil || p.current.pod.UID != pod.UID {
		return nil
	}
	return p.current
}

// PreFilter restricts a pod to its planned node.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if isPlanned(state) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	as := p.assigned(pod)
	if as == nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until its group is planned")
	}
	state.Write(assignedKey, as)
	return &fwk.PreFilterResult{NodeNames: sets.New(as.node)}, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter rejects all nodes but the planned one, even if another one is nominated for the pod.
func (p *Plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if as := p.assigned(pod); as != nil && as.node == info.Node().Name {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are not the planned one")
}

// Reserve implements fwk.ReservePlugin. It has nothing to do, because the index counts the pod since the plan was
// made.
func (p *Plugin) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	return nil
}

// Unreserve implements fwk.ReservePlugin. The framework calls it on the binding goroutine if a pod passed its
// scheduling cycle and is not bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	if as := assignedIn(state); as != nil { // planned states have no assignment: the planner undoes its own placements
		p.planner.inbox.post(func(now time.Time) { p.planner.unbound(as, now) })
	}
}

// Permit makes the pods of a gang wait for one another.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (status *fwk.Status, timeout time.Duration) {
	as := p.assigned(pod)
	if as == nil {
		return fwk.NewStatus(fwk.Unschedulable, "waits until its group is planned"), 0
	}
	if !p.planner.call(func(_ context.Context, now time.Time) { status, timeout = p.planner.arrive(as, now) }) {
		return fwk.NewStatus(fwk.Unschedulable, "the scheduler is ending"), 0
	}
	return status, timeout
}
