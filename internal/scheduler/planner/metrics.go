package planner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"tensorstack.dev/batch/internal/metrics"
)

var (
	roundSeconds = metrics.SchedulerRound.Histogram()
	attempts     = metrics.SchedulerAttempts.Counter()
	groupWait    = metrics.SchedulerGroupWait.Histogram()
)

// Metrics are the metrics that all planners of a process share. ServeMetric serves the metric of a single planner.
var Metrics = []prometheus.Collector{roundSeconds, attempts, groupWait}

// busyClock measures how long the planner's goroutine has been busy. It is a prometheus.Collector, which is called on
// the goroutine of a scrape.
type busyClock struct {
	clock clock.PassiveClock
	desc  *prometheus.Desc
	// since is the time at which the work began, in nanoseconds since 1970; 0 while the planner waits.
	since atomic.Int64
}

func newBusyClock(c clock.PassiveClock) *busyClock {
	return &busyClock{clock: c, desc: metrics.SchedulerPlannerBusy.Desc()}
}

// begin and end enclose the planner's work.
func (b *busyClock) begin() { b.since.Store(b.clock.Now().UnixNano()) }
func (b *busyClock) end()   { b.since.Store(0) }

// duration returns the time since the work began; 0 while the planner waits.
func (b *busyClock) duration() time.Duration {
	since := b.since.Load()
	if since == 0 {
		return 0
	}
	return max(b.clock.Since(time.Unix(0, since)), 0)
}

// Describe implements prometheus.Collector.
func (b *busyClock) Describe(out chan<- *prometheus.Desc) { out <- b.desc }

// Collect implements prometheus.Collector.
func (b *busyClock) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, b.duration().Seconds())
}

// ServeMetric serves the metric of how long the planner has been busy, until ctx ends. A process serves this metric for
// only one planner. Any goroutine may call ServeMetric.
func (pl *Planner) ServeMetric(ctx context.Context) error {
	return metrics.Registered(legacyregistry.Registerer(), pl.busy)(ctx)
}

// attemptBound and attemptFailed are the results of attempts, as values of the metric's label.
const (
	attemptBound  = "bound"
	attemptFailed = "failed"
)

// countWait records how long a group waited before its minimum was bound. It measures from the creation of the youngest
// pod, because the group could not start before. A group without pods is not counted.
func (g *group) countWait(now time.Time) {
	var youngest time.Time
	for _, p := range g.Pods {
		if p.Created.After(youngest) {
			youngest = p.Created
		}
	}
	if youngest.IsZero() {
		return
	}
	groupWait.WithLabelValues(g.spec.Spec.Queue).Observe(max(now.Sub(youngest), 0).Seconds())
}
