package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name of the plugin.
const Name = "T9kGang"

// permitTimeout bounds how long the pods of a gang wait for one another; they arrive in cycles that follow each other.
const permitTimeout = time.Minute

var everything = labels.Everything()

// Config are the settings of the plugin.
type Config struct {
	// ReserveAfter is how long a group waits until room is kept for it.
	ReserveAfter time.Duration
	// Grace is how long a gang may stay partly bound before what runs of it is evicted.
	Grace time.Duration
	// TopologyLabel is the node label that names topology domains; empty: there are none.
	TopologyLabel string
}

// Plugin is the part of the planner that the scheduling framework calls.
type Plugin struct {
	handle     fwk.Handle
	config     Config
	index      *index
	nodeLister corelisters.NodeLister
	synced     func() bool
	woken      chan struct{}
	started    sync.Once
	// planning is true while a round runs, on the goroutine that runs scheduling cycles too.
	planning bool

	// rights is nil where everybody may use all queues.
	rights     *rights
	conditions *conditions
	evictions  *evictions
	arrivals   arrivals

	binder  fwk.BindPlugin
	binding chan struct{}

	mu sync.Mutex
	// tickets are the pods that may enter a scheduling cycle now; plans are those in one.
	tickets map[types.UID]*ticket
	plans   map[types.UID]*ticket
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

// New makes the plugin of a profile. Its planner runs once the scheduler has been attached.
func New(ctx context.Context, handle fwk.Handle, config Config) (*Plugin, error) {
	binder, err := newBinder(ctx, handle)
	if err != nil {
		return nil, fmt.Errorf("making the default plugin that binds: %w", err)
	}
	p := newPlugin(handle, binder, config)
	if err := p.watch(ctx); err != nil {
		return nil, fmt.Errorf("watching pods, groups and queues: %w", err)
	}
	return p, nil
}

// newPlugin makes a plugin that knows of nothing yet.
func newPlugin(handle fwk.Handle, binder fwk.BindPlugin, config Config) *Plugin {
	p := &Plugin{handle: handle, config: config, woken: make(chan struct{}, 1), tickets: map[types.UID]*ticket{}, plans: map[types.UID]*ticket{},
		arrivals: arrivals{pods: map[types.UID]*corev1.Pod{}}, binder: binder, binding: make(chan struct{}, bindings)}
	p.index = newIndex(p.wake, p.completed)
	return p
}

// factory lets the scheduler make the plugin, and keeps it.
func factory(config Config, made *[]*Plugin) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p, err := New(ctx, handle, config)
		if err != nil {
			return nil, err
		}
		*made = append(*made, p)
		return p, nil
	}
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// wake has the planner look at what has changed.
func (p *Plugin) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// allow lets a pod through PreEnqueue and tells the cycle that follows its node.
func (p *Plugin) allow(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tickets[t.pod.UID] = t
	p.plans[t.pod.UID] = t
}

// revoke takes back what allow gave, and tells whether the pod had not used it.
func (p *Plugin) revoke(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, unused := p.tickets[uid]
	delete(p.tickets, uid)
	delete(p.plans, uid)
	return unused
}

// plan is the ticket of a pod that is in a scheduling cycle.
func (p *Plugin) plan(uid types.UID) *ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plans[uid]
}

// EventsToRegister names no events: pods that are held back stay so until a plan has a node for them. Without it each event would
// have the queue look at each of them.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue holds pods back until a plan has a node for them. They are in the queue to be taken out at once, or because a scheduling
// cycle has failed.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tickets[pod.UID] != nil {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until its group is planned")
}

// PreFilter gives a pod the node that is planned for it.
func (p *Plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.planning {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tickets, pod.UID)
	t := p.plans[pod.UID]
	if t == nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits until its group is planned")
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(t.node)}, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps a pod off all nodes but the planned one, also where another one is nominated for it.
func (p *Plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if t := p.plan(pod.UID); t != nil && t.node == info.Node().Name {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) are not the planned one")
}

// Reserve implements fwk.ReservePlugin: the index has had the pod on its node since the plan was made.
func (p *Plugin) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	return nil
}

// Unreserve is called when a pod that had got through its scheduling cycle is not bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	if isPlanned(state) { // the planner takes a pod back itself
		return
	}
	x := p.index
	x.mu.Lock()
	m := x.pods[pod.UID]
	var a *attempt
	if m != nil {
		a = m.attempt
	}
	x.mu.Unlock()
	if a != nil {
		a.fail("pod " + pod.Name + " could not be bound")
	}
	p.giveUp(pod.UID)
}

// Permit is the barrier at which the pods of a gang wait for one another.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	t := p.plan(pod.UID)
	if t == nil || t.attempt.failed() {
		return fwk.NewStatus(fwk.Unschedulable, "the plan for its group has failed"), 0
	}
	if !t.attempt.arrive(pod.UID) {
		return fwk.NewStatus(fwk.Wait), permitTimeout
	}
	t.attempt.release()
	return nil, 0
}
