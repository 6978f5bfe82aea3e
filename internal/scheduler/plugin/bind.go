package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
)

// bindings is the largest number of concurrent bindings. By default, an API server allows 100 concurrent requests per
// connection, and requests beyond that need a new connection. Half of them are left for events and conditions.
const bindings = 50

// newBinder returns the framework's default bind plugin.
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

// Bind calls the default bind plugin for a limited number of pods at a time, because all pods of a gang are bound at
// once.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if err := p.binding.Acquire(ctx, 1); err != nil {
		return fwk.AsStatus(err)
	}
	defer p.binding.Release(1)
	return p.binder.Bind(ctx, state, pod, node)
}
