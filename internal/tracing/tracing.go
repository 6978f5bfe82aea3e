// Package tracing sends OpenTelemetry spans about objects of the cluster to a collector. The IDs of a span are computed
// from its object and its name, so several programs, or a restarted program, can add spans to one trace without
// exchanging a context. Apart from the names in names.go, the package knows nothing about the objects that the spans
// describe. Start reading at Recorder.
package tracing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/version"
)

// Span is an interval in the life of an object.
type Span struct {
	// Object is the UID of the object. All spans of one object are in one trace.
	Object types.UID
	// Name says what happens in the interval.
	Name string
	// Repetition distinguishes spans of one object with the same name; empty for the first of them.
	Repetition string
	// Parent is the name of the span of the same object that contains this one; empty if none does. The parent has no
	// Repetition.
	Parent string
	// Start and End are the bounds of the interval.
	Start, End time.Time
	Attributes []attribute.KeyValue
	// Failure is the reason why the operation failed; empty if it did not fail.
	Failure string
}

const (
	// batchDelay is the longest time that a span waits to be sent together with other spans. A process that is killed
	// loses its waiting spans.
	batchDelay = time.Second
	// exportTimeout is the timeout of one attempt to send spans.
	exportTimeout = 5 * time.Second
	// closeTimeout is the longest time that Close waits until the last spans are sent.
	closeTimeout = 5 * time.Second
)

// Recorder sends spans in the background. Record never blocks: while the collector is unavailable, the Recorder keeps a
// limited number of spans and drops the others. A nil Recorder discards all spans. Methods can be called concurrently.
type Recorder struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// NewRecorder returns a Recorder that sends spans to the collector in settings, or nil if settings is nil. service is
// the service.name of the spans. The context provides the logger. The collector need not be reachable. The caller must
// call Close.
func NewRecorder(ctx context.Context, settings *configv1alpha1.Tracing, service string) (*Recorder, error) {
	if settings == nil {
		return nil, nil
	}
	sender, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(settings.Endpoint), otlptracegrpc.WithInsecure(), otlptracegrpc.WithTimeout(exportTimeout))
	if err != nil {
		return nil, fmt.Errorf("making the sender of traces to %s: %w", settings.Endpoint, err)
	}
	return newRecorder(ctx, sender, settings, service), nil
}

func newRecorder(ctx context.Context, sender sdktrace.SpanExporter, settings *configv1alpha1.Tracing, service string) *Recorder {
	e := newExporter(ctx, sender, settings.Endpoint)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(e, sdktrace.WithBatchTimeout(batchDelay), sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithSampler(sdktrace.TraceIDRatioBased(float64(*settings.SamplingRatePerMillion)/1e6)),
		sdktrace.WithIDGenerator(identities{}),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName(service), semconv.ServiceVersion(version.Version))),
	)
	return &Recorder{provider: provider, tracer: provider.Tracer("tensorstack.dev/batch"), exporter: e}
}

// Enabled reports whether the recorder records spans. If not, callers can skip the computation of spans.
func (r *Recorder) Enabled() bool { return r != nil }

// Record queues spans that have ended. It drops the spans of objects that the sampling rate excludes.
func (r *Recorder) Record(ctx context.Context, spans ...Span) {
	if r == nil {
		return
	}
	for _, s := range spans {
		ctx := context.WithValue(ctx, identity{}, &s)
		options := []trace.SpanStartOption{trace.WithTimestamp(s.Start), trace.WithAttributes(s.Attributes...)}
		if s.Parent == "" {
			options = append(options, trace.WithNewRoot())
		} else {
			ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: traceID(s.Object), SpanID: spanID(s.Object, s.Parent, ""), TraceFlags: trace.FlagsSampled}))
		}
		_, span := r.tracer.Start(ctx, s.Name, options...)
		if s.Failure != "" {
			span.SetStatus(codes.Error, s.Failure)
		}
		span.End(trace.WithTimestamp(s.End))
	}
}

// Close sends the queued spans and stops the recorder. It returns an error if this takes longer than closeTimeout. It
// works even if ctx has ended.
func (r *Recorder) Close(ctx context.Context) error {
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	// If the provider does not shut down in time, it leaves the exporter running.
	if err := errors.Join(r.provider.Shutdown(ctx), r.exporter.Shutdown(ctx)); err != nil {
		return fmt.Errorf("sending the last traces: %w", err)
	}
	return nil
}

// identity is the context key under which Record passes a Span to identities.
type identity struct{}

// identities computes the IDs of spans from their objects and names.
type identities struct{}

var _ sdktrace.IDGenerator = identities{}

// NewIDs implements sdktrace.IDGenerator.
func (identities) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s := spanIn(ctx)
	return traceID(s.Object), spanID(s.Object, s.Name, s.Repetition)
}

// NewSpanID implements sdktrace.IDGenerator.
func (identities) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	s := spanIn(ctx)
	return spanID(s.Object, s.Name, s.Repetition)
}

func spanIn(ctx context.Context) *Span {
	s, ok := ctx.Value(identity{}).(*Span)
	if !ok {
		return &Span{} // only Record starts spans
	}
	return s
}

// traceID and spanID return digests of their arguments. spanID separates the arguments by a character that none of them
// contains.
func traceID(object types.UID) trace.TraceID {
	digest := sha256.Sum256([]byte(object))
	return trace.TraceID(digest[:16])
}

func spanID(object types.UID, name, repetition string) trace.SpanID {
	digest := sha256.Sum256([]byte(string(object) + "\n" + name + "\n" + repetition))
	return trace.SpanID(digest[:8])
}
