package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/metrics"
)

// scrapeTimeout is the longest time for which a scrape waits for the cache.
const scrapeTimeout = 5 * time.Second

// collector reports the statuses and quotas of queues, and how many of their groups wait and for how long, as they are
// in the cache at the time of a scrape.
type collector struct {
	cached client.Reader

	pods, allocated, quota, pending, oldest *prometheus.Desc
}

func newCollector(cached client.Reader) *collector {
	return &collector{cached: cached, pods: metrics.QueuePods.Desc(), allocated: metrics.QueueAllocated.Desc(),
		quota: metrics.QueueQuota.Desc(), pending: metrics.QueuePendingGroups.Desc(), oldest: metrics.QueueOldestPendingGroup.Desc()}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.pods, c.allocated, c.quota, c.pending, c.oldest} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // collectors get no context
	defer cancel()
	var queues scheduling.QueueList
	var groups scheduling.PodGroupList
	err := errors.Join(c.cached.List(ctx, &queues, client.UnsafeDisableDeepCopy), c.cached.List(ctx, &groups, client.UnsafeDisableDeepCopy))
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.pending, fmt.Errorf("reading queues and groups: %w", err))
		return
	}
	pending, oldest, now := map[string]int{}, map[string]time.Duration{}, time.Now()
	for i := range groups.Items {
		if g := &groups.Items[i]; isPending(g) {
			pending[g.Spec.Queue]++
			oldest[g.Spec.Queue] = max(oldest[g.Spec.Queue], now.Sub(waitsSince(g)))
		}
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	// Groups that name a missing queue are not reported, because every user could add label values with them.
	for i := range queues.Items {
		q := &queues.Items[i]
		gauge(c.pods, float64(q.Status.Pods.Pending), q.Name, string(corev1.PodPending))
		gauge(c.pods, float64(q.Status.Pods.Running), q.Name, string(corev1.PodRunning))
		gauge(c.pending, float64(pending[q.Name]), q.Name)
		gauge(c.oldest, oldest[q.Name].Seconds(), q.Name)
		for name, amount := range q.Status.Allocated {
			gauge(c.allocated, amount.AsApproximateFloat64(), q.Name, string(name))
		}
		for name, amount := range q.Spec.Quota.Requests {
			gauge(c.quota, amount.AsApproximateFloat64(), q.Name, string(name))
		}
	}
}

// isPending reports whether a group has pods in the phase Pending and its condition GroupScheduled is not True.
func isPending(g *scheduling.PodGroup) bool {
	if g.Status.Pending == 0 {
		return false
	}
	for _, c := range g.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return c.Status != metav1.ConditionTrue
		}
	}
	return true
}

// waitsSince returns the time since which a pending group waits: the time at which it was found not to be scheduled, or
// else its creation.
func waitsSince(g *scheduling.PodGroup) time.Time {
	for _, c := range g.Status.Conditions {
		if c.Type == scheduling.GroupScheduled && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return g.CreationTimestamp.Time
}
