package plugin

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// slowBinder blocks each binding until proceed allows it, and counts the concurrent bindings.
type slowBinder struct {
	fwk.BindPlugin
	now, most atomic.Int64
	proceed   chan struct{}
}

func (b *slowBinder) Bind(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	now := b.now.Add(1)
	for most := b.most.Load(); now > most && !b.most.CompareAndSwap(most, now); most = b.most.Load() {
	}
	<-b.proceed
	b.now.Add(-1)
	return nil
}

// TestBindingsAreBounded verifies that the number of concurrent bindings does not exceed maxBindings, and that no pod
// is bound after the context has ended.
func TestBindingsAreBounded(t *testing.T) {
	b := &slowBinder{proceed: make(chan struct{})}
	p := newPlugin(nil, b)
	var pods sync.WaitGroup
	for range 3 * maxBindings {
		pods.Go(func() {
			if s := p.Bind(t.Context(), nil, nil, ""); !s.IsSuccess() {
				t.Error(s)
			}
		})
	}
	for range 3 * maxBindings {
		b.proceed <- struct{}{}
	}
	pods.Wait()
	if most := b.most.Load(); most > maxBindings {
		t.Errorf("%d concurrent bindings, want %d", most, maxBindings)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if !p.binding.TryAcquire(maxBindings) {
		t.Fatal("pods are still being bound")
	}
	if p.Bind(ended, nil, nil, "").IsSuccess() {
		t.Error("a pod was bound after the end")
	}
}
