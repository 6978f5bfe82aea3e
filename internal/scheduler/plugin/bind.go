package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
)

// maxBindings is the largest number of concurrent bindings. By default, an API server allows 100 concurrent requests
// per connection, and requests beyond that need a new connection. The other 50 are left for events and conditions.
const maxBindings = 50

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
// once. If a request fails, Bind asks the API server whether the pod is bound, because a binding whose answer was lost
// may have been made. If such a binding counted as failed, the planner would give the room of the pod to others.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if err := p.binding.Acquire(ctx, 1); err != nil {
		return fwk.AsStatus(err)
	}
	defer p.binding.Release(1)
	status := p.binder.Bind(ctx, state, pod, node)
	if status.IsSuccess() || apierrors.IsNotFound(status.AsError()) {
		return status
	}
	bound, err := p.isBound(ctx, pod, node)
	switch {
	case err != nil:
		return fwk.AsStatus(errors.Join(status.AsError(), err))
	case bound:
		klog.FromContext(ctx).Info("A binding was made although its request failed", "pod", klog.KObj(pod), "node", node, "problem", status.AsError())
		return nil
	}
	return status
}

// isBound asks the API server whether a pod is bound to a node. If the request fails, isBound repeats it, up to eight
// requests in all. It returns an error if the pod does not exist.
func (p *Plugin) isBound(ctx context.Context, pod *corev1.Pod, node string) (bound bool, err error) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8}
	err = retry.OnError(backoff, func(err error) bool { return !apierrors.IsNotFound(err) && ctx.Err() == nil }, func() error {
		now, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		bound = err == nil && now.UID == pod.UID && now.Spec.NodeName == node
		return err
	})
	if err != nil {
		return false, fmt.Errorf("asking whether the pod is bound: %w", err)
	}
	return bound, nil
}
