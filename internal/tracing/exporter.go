package tracing

import (
	"context"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/klog/v2"
)

// reportInterval is the shortest time between two log lines about spans that could not be sent.
const reportInterval = 5 * time.Minute

// exporter sends spans. It logs failures at most once per reportInterval, because a collector may be unavailable for a
// long time and no other work depends on it.
type exporter struct {
	sdktrace.SpanExporter
	logger   klog.Logger
	endpoint string
	close    sync.Once

	mu sync.Mutex
	// lost is the number of spans that were lost since reported, the time of the last log line about lost spans.
	lost     int
	reported time.Time
}

func newExporter(ctx context.Context, sender sdktrace.SpanExporter, endpoint string) *exporter {
	return &exporter{SpanExporter: sender, logger: klog.FromContext(ctx), endpoint: endpoint}
}

// ExportSpans implements sdktrace.SpanExporter. It always returns nil, because the SDK would log each error through its
// global logger.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failed(err, len(spans), time.Now())
	}
	return nil
}

// failed counts lost spans. It logs their number and the error, unless the last such log line is younger than
// reportInterval.
func (e *exporter) failed(err error, spans int, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if now.Sub(e.reported) < reportInterval {
		return
	}
	e.logger.Error(err, "Cannot export spans; they are lost", "endpoint", e.endpoint, "spans", e.lost)
	e.reported, e.lost = now, 0
}

// Shutdown implements sdktrace.SpanExporter. Only the first call has an effect.
func (e *exporter) Shutdown(ctx context.Context) (err error) {
	e.close.Do(func() { err = e.SpanExporter.Shutdown(ctx) })
	return err
}
