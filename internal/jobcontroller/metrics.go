package jobcontroller

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/metrics"
)

var (
	timeToFirstPod = metrics.JobTimeToFirstPod.Histogram()
	timeToRunning  = metrics.JobTimeToRunning.Histogram()
	timeToFinish   = metrics.JobTimeToFinish.Histogram()
	restartCounter = metrics.JobRestarts.Counter()
)

func init() {
	ctrlmetrics.Registry.MustRegister(timeToFirstPod, timeToRunning, timeToFinish, restartCounter)
}

// transition describes the changes of one status write that metrics count. A time is nil if the write does not record
// it for the first time.
type transition struct {
	// firstPod, running and finished are the times from the job's creation until the operator began to create its pods,
	// until all its replicas ran for the first time, and until it ended.
	firstPod, running, finished *time.Duration
	// restarts is the number of incidents that began. scope and cause are those of the last incident.
	restarts int32
	scope    batch.RestartScope
	cause    string
}

// transitionOf compares the status that a write replaced with the one that it wrote. Each write replaces exactly the
// status that was read, so every change of a job is in one transition.
func transitionOf(created time.Time, old, written *batch.JobStatus) transition {
	var t transition
	after := func(at *metav1.Time) *time.Duration {
		d := max(at.Sub(created), 0)
		return &d
	}
	if old.StartTime == nil && written.StartTime != nil {
		t.firstPod = after(written.StartTime)
	}
	if c := conditionOf(written, batch.JobRunningCondition); firstRun(old, written, c) {
		t.running = after(&c.LastTransitionTime)
	}
	if old.CompletionTime == nil && written.CompletionTime != nil {
		t.finished = after(written.CompletionTime)
	}
	if n := written.Restarts - old.Restarts; n > 0 && written.Incident != nil {
		t.restarts, t.scope, t.cause = n, written.Incident.Scope, restartCause(written.Incident)
	}
	return t
}

// firstRun reports whether all replicas of a job run for the first time, given the condition Running that was written.
func firstRun(old, written *batch.JobStatus, c *batch.JobCondition) bool {
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != batch.ReasonReplicasRunning || written.RunSeconds > 0 || written.Restarts > 0 {
		return false
	}
	if paused := conditionOf(written, batch.JobPausedCondition); paused != nil && paused.Reason != batch.ReasonNotPaused {
		return false
	}
	before := conditionOf(old, batch.JobRunningCondition)
	return before == nil || before.Status != metav1.ConditionTrue
}

func conditionOf(s *batch.JobStatus, of batch.JobConditionType) *batch.JobCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == of {
			return &s.Conditions[i]
		}
	}
	return nil
}

// restartCause maps an incident to one of the few causes of the restart metric, because kubelets give too many
// different reasons for a label.
func restartCause(i *batch.Incident) string {
	switch {
	case !i.Charged:
		return "disruption"
	case i.Reason == "OOMKilled":
		return "out_of_memory"
	case i.Reason == "Evicted":
		return "evicted"
	}
	return "failure"
}

// count adds a transition to the metrics.
func (t *transition) count(kind string, phase batch.JobPhase) {
	if t.firstPod != nil {
		timeToFirstPod.WithLabelValues(kind).Observe(t.firstPod.Seconds())
	}
	if t.running != nil {
		timeToRunning.WithLabelValues(kind).Observe(t.running.Seconds())
	}
	if t.finished != nil {
		timeToFinish.WithLabelValues(kind, string(phase)).Observe(t.finished.Seconds())
	}
	if t.restarts > 0 {
		restartCounter.WithLabelValues(kind, string(t.scope), t.cause).Add(float64(t.restarts))
	}
}

// phases lists the phases for which the job metric has a value. The value is 0 for a phase that no job is in.
var phases = []batch.JobPhase{batch.JobPending, batch.JobRunning, batch.JobPaused, batch.JobResuming, batch.JobSucceeded,
	batch.JobFailed, batch.JobUnknown}

// scrapeTimeout is the longest time that a scrape waits for the cache.
const scrapeTimeout = 5 * time.Second

// jobCollector counts the jobs of a kind in the cache, and finds the oldest one without pods, when it is scraped, so
// that the metrics cannot differ from the objects.
type jobCollector struct {
	kind         kinds.Kind
	jobs, oldest *prometheus.Desc
	cached       client.Reader
}

// newJobCollector returns the collector of a kind. The kind is a constant label, so that each kind can have its own
// collector.
func newJobCollector(kind kinds.Kind, cached client.Reader) *jobCollector {
	of := prometheus.Labels{"kind": kind.Name}
	return &jobCollector{kind: kind, cached: cached,
		jobs:   prometheus.NewDesc(metrics.Jobs.Name, metrics.Jobs.Help, []string{"phase"}, of),
		oldest: prometheus.NewDesc(metrics.JobOldestWithoutPods.Name, metrics.JobOldestWithoutPods.Help, nil, of)}
}

// Describe implements prometheus.Collector.
func (c *jobCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.jobs
	out <- c.oldest
}

// Collect implements prometheus.Collector.
func (c *jobCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // collectors receive no context
	defer cancel()
	counts, oldest, err := c.count(ctx, time.Now())
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.jobs, err)
		return
	}
	for _, phase := range phases {
		out <- prometheus.MustNewConstMetric(c.jobs, prometheus.GaugeValue, float64(counts[phase]), string(phase))
	}
	out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, oldest.Seconds())
}

// count returns the number of jobs in each phase, and the age of the oldest one that waits for the operator to create
// its pods; zero if none waits. A job without a phase counts as Pending.
func (c *jobCollector) count(ctx context.Context, now time.Time) (counts map[batch.JobPhase]int, oldest time.Duration, err error) {
	list, ok := c.kind.NewList().(client.ObjectList)
	if !ok {
		return nil, 0, fmt.Errorf("%s has no list", c.kind.Name)
	}
	if err := c.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing %s: %w", c.kind.Plural, err)
	}
	counts = map[batch.JobPhase]int{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		job, ok := o.(kinds.Object)
		if !ok {
			return fmt.Errorf("a list of %s has a %T", c.kind.Plural, o)
		}
		status := c.kind.Status(job)
		phase := status.Phase
		if phase == "" {
			phase = batch.JobPending
		}
		counts[phase]++
		if phase == batch.JobPending && status.StartTime == nil && job.GetDeletionTimestamp() == nil {
			oldest = max(oldest, now.Sub(job.GetCreationTimestamp().Time))
		}
		return nil
	})
	return counts, oldest, err
}
