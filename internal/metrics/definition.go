// Package metrics defines the metrics of the operator, the scheduler and the console: their names, labels and buckets.
// It measures nothing itself. Other packages create collectors from these definitions and set their values.
// docs/reference/metrics.md is generated from All and Others. Start reading at All.
package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric.
type Type string

// The types of metrics.
const (
	Gauge     Type = "gauge"
	Counter   Type = "counter"
	Histogram Type = "histogram"
)

// Program is the name of a program that serves metrics.
type Program string

// The programs that serve metrics.
const (
	Operator  Program = "t9k-operator"
	Scheduler Program = "t9k-scheduler"
	Console   Program = "t9k-console"
)

// Label defines a label of a metric.
type Label struct {
	Name string
	// Help describes the values of the label. The number of values must be bounded: no label may name a job, a PodGroup
	// or a pod.
	Help string
}

// Definition defines a metric.
type Definition struct {
	Name    string
	Help    string
	Type    Type
	Program Program
	Labels  []Label
	// Buckets are the upper bounds of the buckets of a histogram, ascending and in the unit of the metric; nil for
	// other types.
	Buckets []float64
}

func (d Definition) labels() []string {
	var names []string
	for _, l := range d.Labels {
		names = append(names, l.Name)
	}
	return names
}

// Gauge returns a new gauge. The caller must register it.
func (d Definition) Gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.labels())
}

// Counter returns a new counter. The caller must register it.
func (d Definition) Counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.labels())
}

// Histogram returns a new histogram. The caller must register it.
func (d Definition) Histogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.labels())
}

// Desc returns the description for collectors that compute their values at scrape time.
func (d Definition) Desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.labels(), nil)
}

// Registered returns a function that registers a collector, waits until its context ends, and unregisters the
// collector. A manager runs the function only in the leader, unless the Runnable is a LeaderElectionRunnable that says
// otherwise. Therefore only the leader reports the metric.
func Registered(registry prometheus.Registerer, c prometheus.Collector) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
		defer registry.Unregister(c)
		<-ctx.Done()
		return nil
	}
}
