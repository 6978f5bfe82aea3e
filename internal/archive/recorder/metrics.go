package recorder

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tensorstack.dev/batch/internal/metrics"
)

// sizeTime is the timeout of the query for the archive's size. A scrape waits for this query.
const sizeTime = 2 * time.Second

var (
	lagDesc  = metrics.ConsoleArchiveLag.Desc()
	sizeDesc = metrics.ConsoleArchiveSize.Desc()
)

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(out chan<- *prometheus.Desc) {
	r.writes.Describe(out)
	out <- lagDesc
	out <- sizeDesc
}

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(out chan<- prometheus.Metric) {
	r.writes.Collect(out)
	out <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, r.lag(time.Now()).Seconds())
	ctx, stop := context.WithTimeout(context.Background(), sizeTime)
	defer stop()
	if size, err := r.Store.Size(ctx); err == nil {
		out <- prometheus.MustNewConstMetric(sizeDesc, prometheus.GaugeValue, float64(size))
	}
}

// lag returns how long the oldest record, or a batch without records, has waited to be written; zero if nothing waits.
func (r *Recorder) lag(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.writing.IsZero():
		return now.Sub(r.writing)
	case !r.waiting.IsZero():
		return now.Sub(r.waiting)
	}
	return 0
}

// written records that no batch is being written.
func (r *Recorder) written() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = time.Time{}
}
