// Package collector receives OpenTelemetry spans over gRPC, as a collector does, and stores them for tests. Start
// reading at Start.
package collector

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is a received span.
type Span struct {
	// Service is the name of the service that sent the span.
	Service string
	// Trace, ID and Parent are the IDs of the trace, of the span and of its parent, in hexadecimal. Parent is empty if
	// the span has no parent.
	Trace, ID, Parent string
	Name              string
	Start, End        time.Time
	// Attributes holds the attributes that are strings or integers, as string and int64.
	Attributes map[string]any
	// Failure is the message of the status Error; empty if there is none.
	Failure string
}

// Collector is a collector that runs until its test ends.
type Collector struct {
	otlp.UnimplementedTraceServiceServer
	// Address is the address to which clients send spans, as HOST:PORT.
	Address string

	mu    sync.Mutex
	spans []Span
}

// Start starts a collector at a free port of 127.0.0.1.
func Start(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Address: l.Addr().String()}
	server := grpc.NewServer()
	otlp.RegisterTraceServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // returns an error when the server stops
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return c
}

// Export implements otlp.TraceServiceServer.
func (c *Collector) Export(_ context.Context, request *otlp.ExportTraceServiceRequest) (*otlp.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ofResource := range request.ResourceSpans {
		service := ""
		for _, a := range ofResource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range ofResource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(service, s))
			}
		}
	}
	return &otlp.ExportTraceServiceResponse{}, nil
}

func spanOf(service string, s *tracev1.Span) Span {
	span := Span{Service: service, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Name: s.Name, Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)), Attributes: map[string]any{}}
	for _, a := range s.Attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			span.Attributes[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			span.Attributes[a.Key] = v.IntValue
		}
	}
	if s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		span.Failure = s.Status.Message
	}
	return span
}

// Spans returns the spans that have arrived, in order of arrival.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}
