package plugin

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"tensorstack.dev/batch/internal/metrics"
	"tensorstack.dev/batch/internal/scheduler/core"
)

var (
	roundSeconds = metrics.SchedulerRound.Histogram()
	attempts     = metrics.SchedulerAttempts.Counter()
	evictedPods  = metrics.SchedulerEvictedPods.Counter()
	groupWait    = metrics.SchedulerGroupWait.Histogram()
)

// registerMetrics adds the planner's metrics to those of the kube-scheduler. It is not an init function, because other
// programs that contain this package serve the same registry.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.Registerer().MustRegister(roundSeconds, attempts, evictedPods, groupWait)
})

// Results of attempts.
const (
	attemptBound  = "bound"
	attemptFailed = "failed"
)

// evictionCause returns why a decision evicts pods.
func evictionCause(d *core.Decision) string {
	if d.Reservation == nil {
		return "incomplete"
	}
	return "preemption"
}

// countWait counts how long a group waited whose minimum is bound now. It counts from the youngest pod, since the group
// could not start before.
func (g *group) countWait(now time.Time) {
	var youngest time.Time
	for _, p := range g.core.Pods {
		if p.Created.After(youngest) {
			youngest = p.Created
		}
	}
	if youngest.IsZero() {
		return
	}
	groupWait.WithLabelValues(g.spec.Spec.Queue).Observe(max(now.Sub(youngest), 0).Seconds())
}
