package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

var (
	errDown    = errors.New("connection refused")
	errExpired = apierrors.NewResourceExpired("too old resource version")
)

func pod(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// script answers requests in order and records them. When it has no more answers, it cancels the context.
type script struct {
	t       *testing.T
	answers []answer
	asked   []string
	changes []string
	cancel  context.CancelFunc
}

// answer is the API server's answer to a request: an error, a list, or the events of a watch that then ends.
type answer struct {
	err    error
	list   []corev1.Pod
	events []apiwatch.Event
}

func (s *script) next(request string) answer {
	s.asked = append(s.asked, request)
	if len(s.answers) == 0 {
		s.cancel()
		return answer{err: context.Canceled}
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a
}

func (s *script) source() Source {
	return Source{
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			a := s.next("list")
			if a.err != nil {
				return nil, a.err
			}
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}, Items: a.list}, nil
		},
		Watch: func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			if !o.AllowWatchBookmarks {
				s.t.Error("a watch without bookmarks")
			}
			a := s.next("watch from " + o.ResourceVersion)
			if a.err != nil {
				return nil, a.err
			}
			w := apiwatch.NewFakeWithChanSize(len(a.events), false)
			for _, e := range a.events {
				w.Action(e.Type, e.Object)
			}
			w.Stop()
			return w, nil
		},
	}
}

func (s *script) emit(c Change) {
	var names []string
	for _, o := range c.Objects {
		names = append(names, o.(*corev1.Pod).Name)
	}
	word := [...]string{"listed", "set", "gone", "lost", "back"}[c.Type]
	s.changes = append(s.changes, strings.TrimSpace(fmt.Sprint(word, " ", strings.Join(names, ","))))
}

func ended(events ...apiwatch.Event) answer { return answer{events: events} }

func event(t apiwatch.EventType, o runtime.Object) apiwatch.Event {
	return apiwatch.Event{Type: t, Object: o}
}

func TestRunContinuesAfterInterruptions(t *testing.T) {
	expired := errExpired.Status()
	broken := apierrors.NewInternalError(errDown).Status()
	for _, test := range []struct {
		name    string
		answers []answer
		asked   []string
		changes []string
	}{{
		name: "a watch that ends is continued from its last version",
		answers: []answer{{list: []corev1.Pod{*pod("a", "5")}},
			ended(event(apiwatch.Added, pod("b", "11")), event(apiwatch.Bookmark, pod("", "20"))),
			ended(event(apiwatch.Modified, pod("b", "21")), event(apiwatch.Deleted, pod("a", "22")))},
		asked:   []string{"list", "watch from 10", "watch from 20", "watch from 22"},
		changes: []string{"listed a", "set b", "set b", "gone a"},
	}, {
		name: "an expired version, reported at the start of a watch",
		answers: []answer{{}, ended(event(apiwatch.Added, pod("a", "11"))), {err: errExpired},
			{list: []corev1.Pod{*pod("c", "40")}}},
		asked:   []string{"list", "watch from 10", "watch from 11", "list", "watch from 10"},
		changes: []string{"listed", "set a", "listed c"},
	}, {
		name:    "an expired version, reported within a watch",
		answers: []answer{{}, ended(event(apiwatch.Error, &expired)), {list: []corev1.Pod{*pod("c", "40")}}},
		asked:   []string{"list", "watch from 10", "list", "watch from 10"},
		changes: []string{"listed", "listed c"},
	}, {
		name: "an outage is reported once, and its end",
		answers: []answer{{}, ended(event(apiwatch.Added, pod("a", "11"))), {err: errDown}, {err: errDown}, {err: errDown},
			ended(event(apiwatch.Modified, pod("a", "12")))},
		asked:   []string{"list", "watch from 10", "watch from 11", "watch from 11", "watch from 11", "watch from 11", "watch from 12"},
		changes: []string{"listed", "set a", "lost", "back", "set a"},
	}, {
		name:    "an error within a watch is an outage",
		answers: []answer{{}, ended(event(apiwatch.Error, &broken)), ended()},
		asked:   []string{"list", "watch from 10", "watch from 10", "watch from 10"},
		changes: []string{"listed", "lost", "back"},
	}, {
		name: "an outage during which the version expires",
		answers: []answer{{}, {err: errDown}, {err: errExpired}, {err: errDown},
			{err: apierrors.NewForbidden(schema.GroupResource{}, "", errDown)}, {list: []corev1.Pod{*pod("z", "9")}}},
		asked:   []string{"list", "watch from 10", "watch from 10", "list", "list", "list", "watch from 10"},
		changes: []string{"listed", "lost", "back", "listed z"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &script{t: t, answers: slices.Clone(test.answers), cancel: cancel}
				if err := Run(ctx, s.source(), s.emit); !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
				if diff := cmp.Diff(test.asked, s.asked); diff != "" {
					t.Errorf("requests (-want +got)\n%s", diff)
				}
				if diff := cmp.Diff(test.changes, s.changes); diff != "" {
					t.Errorf("reports (-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestRunReturnsTheRefusalOfTheFirstList(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	s := &script{t: t, answers: []answer{{err: forbidden}}, cancel: func() {}}
	if err := Run(t.Context(), s.source(), s.emit); !apierrors.IsForbidden(err) {
		t.Errorf("Run: %v", err)
	}
}

// TestRunWaitsForServerThatHasAnsweredBefore verifies that an outage during the first list is handled like any other
// outage.
func TestRunWaitsForServerThatHasAnsweredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errDown)
		s := &script{t: t, cancel: cancel, answers: []answer{{err: errDown}, {err: forbidden}, {list: []corev1.Pod{*pod("a", "5")}}}}
		src := s.source()
		src.Answered = true
		if err := Run(ctx, src, s.emit); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if diff := cmp.Diff([]string{"lost", "back", "listed a"}, s.changes); diff != "" {
			t.Errorf("reports (-want +got)\n%s", diff)
		}
	})
	s := &script{t: t, cancel: func() {}, answers: []answer{{err: errDown}}}
	if err := Run(t.Context(), s.source(), s.emit); !errors.Is(err, errDown) {
		t.Errorf("Run of a source that has never answered: %v", err)
	}
}

// TestRunRetriesAtBoundedIntervals verifies that a long outage does not cause a storm of requests, and that Run soon
// notices the end of the outage.
func TestRunRetriesAtBoundedIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &script{t: t, cancel: cancel, answers: []answer{{}}}
		for range 1000 {
			s.answers = append(s.answers, answer{err: errDown})
		}
		if err := Run(ctx, s.source(), s.emit); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", err)
		}
		if n := len(s.asked); n < 20 || n > 30 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}
