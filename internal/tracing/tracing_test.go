package tracing

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	configv1alpha1 "tensorstack.dev/batch/api/config/v1alpha1"
	"tensorstack.dev/batch/internal/testing/collector"
)

var began = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

// sent returns the spans that a collector receives from several programs, each with its own recorder. rate is the
// sampling rate per million.
func sent(t *testing.T, rate int32, programs map[string][]Span) []collector.Span {
	t.Helper()
	c := collector.Start(t)
	for service, spans := range programs {
		r, err := NewRecorder(t.Context(), &configv1alpha1.Tracing{Endpoint: c.Address, SamplingRatePerMillion: &rate}, service)
		if err != nil {
			t.Fatal(err)
		}
		r.Record(t.Context(), spans...)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return c.Spans()
}

func TestProgramsAddToOneTraceOfAnObject(t *testing.T) {
	root := Span{Object: "a", Name: StartJob, Start: after(0), End: after(9), Failure: "ReplicaFailed", Attributes: []attribute.KeyValue{Namespace.String("ns"), Replicas.Int(3)}}
	child := Span{Object: "a", Name: SchedulePods, Parent: StartJob, Start: after(2), End: after(5)}
	again := child
	again.Repetition = "2"
	other := Span{Object: "b", Name: StartJob, Start: after(1), End: after(1)}
	all := sent(t, 1000000, map[string][]Span{"t9k-operator": {root, other}, "t9k-scheduler": {child, again}})
	if len(all) != 4 {
		t.Fatalf("received %d spans: %+v", len(all), all)
	}
	of := func(service, name string, n int) collector.Span {
		all := slices.DeleteFunc(slices.Clone(all), func(s collector.Span) bool { return s.Service != service || s.Name != name })
		return all[n]
	}
	gotRoot, gotOther, gotChild, gotAgain := of("t9k-operator", StartJob, 0), of("t9k-operator", StartJob, 1), of("t9k-scheduler", SchedulePods, 0), of("t9k-scheduler", SchedulePods, 1)
	if gotRoot.Parent != "" || !gotRoot.Start.Equal(root.Start) || !gotRoot.End.Equal(root.End) || gotRoot.Failure != root.Failure ||
		gotRoot.Attributes["k8s.namespace.name"] != "ns" || gotRoot.Attributes["t9k.job.replicas"] != int64(3) {
		t.Errorf("the root is %+v", gotRoot)
	}
	if gotChild.Trace != gotRoot.Trace || gotChild.Parent != gotRoot.ID || gotChild.Failure != "" || !gotChild.Start.Equal(child.Start) || !gotChild.End.Equal(child.End) {
		t.Errorf("the child of %+v is %+v", gotRoot, gotChild)
	}
	if gotAgain.Trace != gotRoot.Trace || gotAgain.Parent != gotRoot.ID || gotAgain.ID == gotChild.ID {
		t.Errorf("the repetition of %+v is %+v", gotChild, gotAgain)
	}
	if gotOther.Trace == gotRoot.Trace || gotOther.ID == gotRoot.ID {
		t.Errorf("another object has trace %s and span %s", gotOther.Trace, gotOther.ID)
	}
}

func TestProgramsSampleTheSameObjects(t *testing.T) {
	var spans []Span
	for i := range 1000 {
		spans = append(spans, Span{Object: types.UID(fmt.Sprint("job-", i)), Name: StartJob, Start: began, End: began})
	}
	objects := map[string][]string{}
	for _, s := range sent(t, 300000, map[string][]Span{"one": spans, "two": spans}) {
		objects[s.Service] = append(objects[s.Service], s.Trace)
	}
	if n := len(objects["one"]); n < 200 || n > 400 {
		t.Errorf("%d of 1000 traces are sampled, about 300 are wanted", n)
	}
	if !slices.Equal(objects["one"], objects["two"]) {
		t.Error("two programs sample different objects")
	}
	if all := sent(t, 0, map[string][]Span{"none": spans}); len(all) > 0 {
		t.Errorf("with the rate 0, %d spans are sent", len(all))
	}
}

// TestCollectorThatIsAway verifies that recording and closing return even if no collector accepts the spans, that
// closing then returns an error, and that the failures make at most one line in the log. A call that does not return
// fails the test by its timeout.
func TestCollectorThatIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var log lines
	ctx := klog.NewContext(t.Context(), log.logger())
	r, err := NewRecorder(ctx, &configv1alpha1.Tracing{Endpoint: l.Addr().String(), SamplingRatePerMillion: new(int32(1000000))}, "t9k-operator")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10000 { // more than the recorder keeps
		r.Record(ctx, Span{Object: types.UID(fmt.Sprint(i)), Name: StartJob, Start: began, End: began})
	}
	if err := r.Close(ctx); err == nil {
		t.Error("closing reports no error, although the collector has not taken the spans")
	}
	if n := len(log.all()); n > 1 {
		t.Errorf("%d lines in the log: %q", n, log.all())
	}
}

func TestFailuresAreLoggedSparsely(t *testing.T) {
	var log lines
	e := newExporter(klog.NewContext(t.Context(), log.logger()), nil, "collector:4317")
	for i := range 601 {
		e.failed(errors.New("away"), 2, began.Add(time.Duration(i)*time.Second))
	}
	got := log.all()
	if len(got) != 3 || !strings.Contains(got[0], `"spans"=2`) || !strings.Contains(got[1], `"spans"=600`) || !strings.Contains(got[2], "collector:4317") {
		t.Errorf("the log is %q", got)
	}
}

func TestNoSettingsNoRecorder(t *testing.T) {
	r, err := NewRecorder(t.Context(), nil, "t9k-operator")
	if err != nil || r.Enabled() {
		t.Errorf("recorder %v, error %v", r, err)
	}
	r.Record(t.Context(), Span{Name: StartJob})
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// lines collects the lines of a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() klog.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{})
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}
