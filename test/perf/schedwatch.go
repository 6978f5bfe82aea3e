package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bindings records when pods are created, bound and evicted, from one watch. It holds the groups by name.
type bindings struct {
	*observer
	bound  map[types.UID]bool
	groups map[string]*groupSeen
	// first and last are the times of the first and last binding since the last reset, and evicted is the time of the
	// first eviction.
	first, last, evicted time.Time
}

// groupSeen is the record of one group: the numbers of its created and bound pods, and the times of the last creation
// (complete) and of the last binding (last).
type groupSeen struct {
	created, bound int
	complete, last time.Time
}

func observeBindings(p *plane) (*bindings, error) {
	b := &bindings{observer: &observer{changed: make(chan struct{}, 1)}}
	b.reset()
	return b, b.watch(p, &corev1.PodList{}, b.note)
}

func (b *bindings) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n = counts{}
	b.bound, b.groups = map[types.UID]bool{}, map[string]*groupSeen{}
	b.first, b.last, b.evicted = time.Time{}, time.Time{}, time.Time{}
}

func (b *bindings) note(t watch.EventType, object client.Object, now time.Time) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if t == watch.Deleted {
		b.n.gone++
		return
	}
	if b.evicted.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
		b.evicted = now
	}
	name := pod.Labels[jobLabel]
	g := b.groups[name]
	if g == nil {
		g = &groupSeen{}
		b.groups[name] = g
	}
	if t == watch.Added {
		g.created++
		g.complete = now
	}
	if pod.Spec.NodeName == "" || b.bound[pod.UID] {
		return
	}
	b.bound[pod.UID] = true
	b.n.started++
	g.bound++
	g.last, b.last = now, now
	if b.first.IsZero() {
		b.first = now
	}
}

func (b *bindings) awaitBound(ctx context.Context, pods int) error {
	return b.await(ctx, "all pods are bound", func(n counts) bool { return n.started >= pods })
}

func (b *bindings) awaitGone(ctx context.Context, pods int) error {
	return b.await(ctx, "all pods are gone", func(n counts) bool { return n.gone >= pods })
}

// span returns the times at which the first and the last pod were bound.
func (b *bindings) span() (first, last time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first, b.last
}

// untilEviction returns the time from the creation of a group's last pod to the first eviction, which must have been
// seen.
func (b *bindings) untilEviction(group string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.evicted.Sub(b.groups[group].complete)
}

// waits returns, for each group that is bound, the time from the creation of its last pod until the binding of its last
// pod.
func (b *bindings) waits() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []time.Duration
	for _, g := range b.groups {
		if g.created > 0 && g.bound == g.created {
			all = append(all, max(0, g.last.Sub(g.complete)))
		}
	}
	return all
}
