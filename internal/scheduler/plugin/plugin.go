package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/configuration"
	"tensorstack.dev/batch/internal/scheduler/placement"
	"tensorstack.dev/batch/internal/scheduler/planner"
	"tensorstack.dev/batch/internal/scheduler/podqueue"
	"tensorstack.dev/batch/internal/tracing"
)

// Name is the name of the plugin.
const Name = planner.PluginName

// Plugin is the plugin that the scheduling framework calls. It asks the planner and has no state of groups.
type Plugin struct {
	handle  fwk.Handle
	planner *planner.Planner
	// queue is nil until the scheduler has been attached.
	queue *podqueue.Queue
	// current is the assignment of the running scheduling cycle; nil for a pod of another profile. It belongs to the
	// scheduling goroutine.
	current *planner.Assignment

	binder  fwk.BindPlugin
	binding *semaphore.Weighted
	// spans is nil if tracing is disabled.
	spans *tracing.Recorder

	// stop ends the goroutines that the plugin has started, and background waits for them.
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

// New returns the plugin of a profile, and starts its informers and its writer, which Close ends. Its planner runs once
// the scheduler has been attached.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (*Plugin, error) {
	settings, err := Settings(args)
	if err != nil {
		return nil, err
	}
	binder, err := newBinder(ctx, handle)
	if err != nil {
		return nil, fmt.Errorf("making the default plugin that binds: %w", err)
	}
	p := newPlugin(handle, binder)
	if p.spans, err = tracing.NewRecorder(ctx, settings.Tracing, "t9k-scheduler"); err != nil {
		return nil, err
	}
	ctx, p.stop = context.WithCancel(ctx)
	if err := p.watch(ctx, settings); err != nil {
		return nil, errors.Join(fmt.Errorf("watching pods, groups and queues: %w", err), p.Close())
	}
	return p, nil
}

// newPlugin returns a plugin without a planner.
func newPlugin(handle fwk.Handle, binder fwk.BindPlugin) *Plugin {
	return &Plugin{handle: handle, binder: binder, binding: semaphore.NewWeighted(maxBindings), stop: func() {}}
}

// Settings returns the plugin's arguments, with defaults for the fields that are not set. It fails if they are invalid.
func Settings(args runtime.Object) (*configv1alpha1.T9kGangArgs, error) {
	var text []byte
	if args != nil {
		unknown, ok := args.(*runtime.Unknown)
		if !ok {
			return nil, fmt.Errorf("the arguments of plugin %s are a %T", Name, args)
		}
		text = unknown.Raw
	}
	path := field.NewPath("profiles").Key(scheduling.SchedulerName).Child("pluginConfig").Key(Name).Child("args")
	settings, err := configuration.GangArgs(text, path)
	if err != nil {
		return nil, fmt.Errorf("the configuration file is invalid: %w", err)
	}
	return settings, nil
}

// Attach lets the scheduler take its pods from the planner, and starts the planner, which places pods on the nodes n.
func (p *Plugin) Attach(ctx context.Context, sched *scheduler.Scheduler, n *placement.Nodes) {
	p.connect(sched, n)
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		got := p.planner.Next(ctx, logger)
		p.current = got.Assignment
		return got.Info, got.Err
	}
	ctx, stop := context.WithCancel(ctx)
	also := p.stop
	p.stop = func() { also(); stop() }
	p.background.Go(func() { p.planner.Run(ctx) })
	p.background.Go(func() {
		if err := p.planner.ServeMetric(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot serve the planner's metric")
		}
	})
}

// connect replaces the scheduler's queue by one that keeps waiting pods separately, and connects the planner to the
// scheduler.
func (p *Plugin) connect(sched *scheduler.Scheduler, n *placement.Nodes) {
	p.queue = podqueue.New(sched.SchedulingQueue, p.planner)
	sched.SchedulingQueue = p.queue
	p.planner.Connect(planner.Scheduler{Queue: p.queue, Nodes: n, Pop: sched.NextPod})
}

// Close ends the goroutines that the plugin has started, waits for them, and sends the remaining spans. The scheduler
// calls it after it has closed its queue.
func (p *Plugin) Close() error {
	p.stop()
	p.background.Wait()
	return p.spans.Close(context.Background()) // the framework passes no context to Close
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// EventsToRegister names no events, because pods are held back until a plan has a node for them. Without this method,
// the queue would examine each of them at every event.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue holds pods back until a plan has a node for them. A pod enters the queue only for its scheduling cycle, or
// after its cycle has failed.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if p.queue.Admits(pod.UID) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until its group is planned")
}

// assigned returns the assignment of a pod's scheduling cycle; nil if there is none.
func (p *Plugin) assigned(pod *corev1.Pod) *planner.Assignment {
	if p.current == nil || p.current.Pod.UID != pod.UID {
		return nil
	}
	return p.current
}

// assignedKey is the key of the assignment in the state of a scheduling cycle.
const assignedKey fwk.StateKey = Name + "/assigned"

// assignedIn returns the assignment in the state of a scheduling cycle; nil if there is none.
func assignedIn(state fwk.CycleState) *planner.Assignment {
	data, err := state.Read(assignedKey)
	if err != nil {
		return nil
	}
	as, _ := data.(*planner.Assignment)
	return as
}

// PreFilter restricts a pod to its planned node, and rejects a pod without a plan. For pods that the planner is
// placing, it skips the plugin.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if placement.IsPlanned(state) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	as := p.assigned(pod)
	if as == nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until its group is planned")
	}
	state.Write(assignedKey, as)
	return &fwk.PreFilterResult{NodeNames: sets.New(as.Node)}, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter rejects all nodes except the planned one, even if another node is nominated for the pod.
func (p *Plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if as := p.assigned(pod); as != nil && as.Node == info.Node().Name {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are not the planned one")
}

// Reserve implements fwk.ReservePlugin. It does nothing, because the index already counts the planned pod.
func (p *Plugin) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	return nil
}

// Unreserve implements fwk.ReservePlugin. The framework calls it if a pod is not bound after Reserve, on the scheduling
// goroutine or on a binding goroutine.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	if as := assignedIn(state); as != nil { // planned states have no assignment: the planner undoes its own placements
		p.planner.Unbound(as)
	}
}

// Permit makes the pods of a gang wait for one another.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	as := p.assigned(pod)
	if as == nil {
		return fwk.NewStatus(fwk.Unschedulable, "waits until its group is planned"), 0
	}
	return p.planner.Permit(as)
}
