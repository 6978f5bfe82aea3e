package podlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

var errBroken = errors.New("connection reset by peer")

// server answers requests for a log like a kubelet. It breaks the connection of response i after breaks[i] bytes; later
// responses are complete.
type server struct {
	lines  []Line
	breaks []int
	calls  int
}

func (s *server) open(_ context.Context, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	var b strings.Builder
	first := 0
	if o.TailLines != nil {
		first = max(0, len(s.lines)-int(*o.TailLines))
	}
	for _, l := range s.lines[first:] {
		if o.SinceTime != nil && l.Time.Before(o.SinceTime.Time) {
			continue
		}
		fmt.Fprintf(&b, "%s %s\n", l.Time.Format(time.RFC3339Nano), l.Text)
	}
	call := s.calls
	s.calls++
	if call < len(s.breaks) {
		n := min(s.breaks[call], b.Len())
		return io.NopCloser(io.MultiReader(strings.NewReader(b.String()[:n]), broken{})), nil
	}
	return io.NopCloser(strings.NewReader(b.String())), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// logOf returns a log of n lines, in which several lines may share a timestamp and many lines share a second.
func logOf(r *rand.Rand, n int) []Line {
	t := time.Date(2026, 1, 2, 3, 4, 5, 999_000_000, time.UTC)
	lines := make([]Line, n)
	for i := range lines {
		if r.IntN(3) > 0 {
			t = t.Add(time.Duration(r.IntN(400)) * time.Millisecond)
		}
		lines[i] = Line{t, fmt.Sprintf("line %d", r.IntN(4))} // lines may have equal texts, too
	}
	return lines
}

func TestEveryLineIsReadOnceDespiteBrokenConnections(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &server{lines: logOf(r, 1+r.IntN(40))}
		for range r.IntN(6) {
			s.breaks = append(s.breaks, r.IntN(800))
		}
		var got []Line
		reader := &Reader{Open: s.open, Emit: func(l Line) { got = append(got, l) }}
		for {
			err := reader.Once(t.Context())
			if err == nil {
				break
			}
			if !errors.Is(err, errBroken) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if diff := cmp.Diff(s.lines, got); diff != "" {
			t.Fatalf("seed %d, breaks %v: lines (-want +got)\n%s", seed, s.breaks, diff)
		}
	}
}

func TestReaderContinuesFromAPosition(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		all := logOf(r, 1+r.IntN(30))
		var at Position
		var got []Line
		for _, part := range [][]Line{all[:r.IntN(len(all)+1)], all, all} {
			tail := int64(1)
			reader := &Reader{Open: (&server{lines: part}).open, Position: at, Emit: func(l Line) { got = append(got, l); at.Pass(l.Time) }}
			if at.Seen > 0 {
				reader.Options.TailLines = &tail // must have no effect, because the reader continues from a position
			}
			if err := reader.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			if reader.Position != at {
				t.Fatalf("seed %d: the reader is at %v, its lines end at %v", seed, reader.Position, at)
			}
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Fatalf("seed %d: lines (-want +got)\n%s", seed, diff)
		}
	}
}

func TestTailCountsOnTheFirstRequestOnly(t *testing.T) {
	s := &server{lines: logOf(rand.New(rand.NewPCG(7, 7)), 20), breaks: []int{70}}
	tail := int64(5)
	var got []Line
	r := &Reader{Open: s.open, Options: corev1.PodLogOptions{TailLines: &tail}, Emit: func(l Line) { got = append(got, l) }}
	if err := r.Once(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("the first request did not break: %v", err)
	}
	if len(got) == 0 || len(got) == 5 {
		t.Fatalf("%d lines before the break: the test needs some but not all", len(got))
	}
	if err := r.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.lines[15:], got); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
}

func TestFollowContinuesAfterAnEarlyEnd(t *testing.T) {
	// The first response ends early without an error, as when an API server shuts down.
	all := logOf(rand.New(rand.NewPCG(3, 3)), 10)
	s := &server{lines: all[:4]}
	ended := make(chan struct{})
	var got []Line
	r := &Reader{Emit: func(l Line) { got = append(got, l) }}
	r.Open = func(ctx context.Context, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		if !o.Follow {
			t.Error("the log is not followed")
		}
		stream, err := s.open(ctx, o)
		if s.calls == 1 {
			s.lines = all
			close(ended)
		}
		return stream, err
	}
	if err := r.Follow(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
}

// TestLogOfTheNextAttemptIsNotReadAsOwn verifies that a Reader of a pod's log never reads the log of a later pod with
// the same name.
func TestLogOfTheNextAttemptIsNotReadAsOwn(t *testing.T) {
	pods := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "new"}}).CoreV1().Pods("n")
	for uid, gone := range map[types.UID]bool{"new": false, "old": true} {
		stream, err := OpenerOf(pods, "p", uid)(t.Context(), &corev1.PodLogOptions{})
		if apierrors.IsNotFound(err) != gone || (err == nil) == gone {
			t.Errorf("the log of pod %s: %v", uid, err)
		}
		if stream != nil {
			stream.Close()
		}
	}
}

func TestWholeLogOfPodThatIsGoneThenIsEnough(t *testing.T) {
	s, ended := &server{lines: logOf(rand.New(rand.NewPCG(3, 3)), 10)}, make(chan struct{})
	r := &Reader{Emit: func(Line) {}}
	r.Open = func(ctx context.Context, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		if s.calls == 1 {
			return nil, apierrors.NewNotFound(corev1.Resource("pods"), "p")
		}
		stream, err := s.open(ctx, o)
		close(ended)
		return stream, err
	}
	if err := r.Follow(t.Context(), ended); err != nil {
		t.Error(err)
	}
}

// TestFollowReportsThatItRetries verifies that Follow reports once that the API server cannot read a log, and that it
// reports neither a short failure nor an API server that does not answer.
func TestFollowReportsThatItRetries(t *testing.T) {
	noRoute := apierrors.NewInternalError(errors.New("no route to host"))
	for _, test := range []struct {
		err      error
		failures int
		want     int
	}{{noRoute, silentRetries, 0}, {noRoute, silentRetries + 2, 1}, {errBroken, silentRetries + 2, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s, ended, calls := &server{lines: logOf(rand.New(rand.NewPCG(3, 3)), 10)}, make(chan struct{}), 0
			var got []error
			r := &Reader{Emit: func(Line) {}, Retrying: func(err error) { got = append(got, err) }}
			r.Open = func(ctx context.Context, o *corev1.PodLogOptions) (io.ReadCloser, error) {
				if calls++; calls <= test.failures {
					return nil, test.err
				}
				close(ended)
				r.Open = s.open
				return s.open(ctx, o)
			}
			if err := r.Follow(t.Context(), ended); err != nil {
				t.Fatal(err)
			}
			if len(got) != test.want {
				t.Errorf("%d times %v: reported %v, want %d reports", test.failures, test.err, got, test.want)
			}
		})
	}
}

func TestFollowEnds(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "p", nil)
	for _, test := range []struct {
		name  string
		err   error
		want  error
		calls int
	}{
		{"a pod that does not exist", notFound, ErrGone, 1},
		{"a log that the user may not read", forbidden, forbidden, 1},
		{"a pod that has ended, after some retries", errBroken, errBroken, lastTries},
	} {
		calls := 0
		r := &Reader{Open: func(context.Context, *corev1.PodLogOptions) (io.ReadCloser, error) {
			calls++
			return nil, test.err
		}}
		if err := r.Follow(t.Context(), ended); !errors.Is(err, test.want) || calls != test.calls {
			t.Errorf("%s: %v after %d calls, want %v after %d", test.name, err, calls, test.want, test.calls)
		}
	}
}
