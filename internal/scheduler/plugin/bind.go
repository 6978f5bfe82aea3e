package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
)

// bindings is how many pods are being bound at once. An API server lets a client have 100 requests under way on one connection,
// unless told otherwise, and each one beyond that costs both of them a new connection. Half of them are left for events and
// conditions.
const bindings = 50

// newBinder makes the default plugin.
func newBinder(ctx context.Context, handle fwk.Handle) (fwk.BindPlugin, error) {
	p, err := defaultbinder.New(ctx, nil, handle)
	if err != nil {
		return nil, err
	}
	binder, ok := p.(fwk.BindPlugin)
	if !ok {
		return nil, fmt.Errorf("%T binds no pods", p)
	}
	return binder, nil
}

// Bind does what the default plugin does, for a bounded number of pods at a time: all pods of a gang come here at once.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if err := p.binding.Acquire(ctx, 1); err != nil {
		return fwk.AsStatus(err)
	}
	defer p.binding.Release(1)
	return p.binder.Bind(ctx, state, pod, node)
}
