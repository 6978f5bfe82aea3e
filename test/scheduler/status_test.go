package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-logr/logr"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/queue"
)

// keepStatus runs the controllers of the operator that keep the status of queues and groups.
func (s *stage) keepStatus() {
	s.Helper()
	ctrl.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(s.env.Config, ctrl.Options{Scheme: s.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	s.must(err)
	s.must(queue.Add(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}

// TestStatus: clauses 8 and 12.
func TestStatus(t *testing.T) {
	s := newStage(t)
	s.must(s.client.Delete(t.Context(), &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: scheduling.DefaultQueue}}))
	s.keepStatus()
	s.await("the operator makes the default queue", func() error {
		return s.client.Get(t.Context(), client.ObjectKey{Name: scheduling.DefaultQueue}, &scheduling.Queue{})
	})
	s.node("n", 10, nil)
	s.queue("counted", "8", 0)
	s.group("runs", "counted", 2, "3")
	s.awaitBound("runs", 2)
	s.group("waits", "counted", 2, "2")
	began := time.Now()
	var q scheduling.Queue
	s.await("the queue counts", func() error {
		s.must(s.client.Get(t.Context(), client.ObjectKey{Name: "counted"}, &q))
		if q.Status.PodGroups.Total != 2 || q.Status.Pods.Pending != 4 || q.Status.Allocated.Cpu().Value() != 6 {
			return fmt.Errorf("%+v", q.Status)
		}
		return nil
	})
	if took := time.Since(began); took > time.Second {
		t.Errorf("the status was exact after %s", took)
	}
	s.await("the group counts", func() error {
		pg := &scheduling.PodGroup{}
		s.must(s.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "runs"}, pg))
		if pg.Status.Allocated != 2 || pg.Status.Pending != 2 || len(pg.Status.Conditions) != 2 {
			return fmt.Errorf("%+v", pg.Status)
		}
		return nil
	})
	s.awaitReason("waits", scheduling.ReasonQuotaExceeded)
	s.checkLines(s.t9k("queue", "describe", "counted"), "Pods 0 running, 4 pending, 0 succeeded, 0 failed", "cpu 6 of 8 [###############.....] 75 %", "Namespaces all")
	if text := s.t9k("queue", "describe", "counted"); !strings.Contains(text, "default/waits   2      0") || !strings.Contains(text, "4 cpu needed, 2 of 8 left") {
		t.Errorf("who waits is not told:\n%s", text)
	}
	if text := s.t9k("queue", "list"); !strings.Contains(text, "counted") || !strings.Contains(text, "6/8") || !strings.Contains(text, "default") {
		t.Errorf("the list of queues:\n%s", text)
	}
	q.Spec.MaxDuration = "1ms"
	s.must(s.client.Update(t.Context(), &q))
	s.await("pods that are too old go", func() error {
		for _, p := range append(s.pods("runs"), s.pods("waits")...) {
			if p.DeletionTimestamp == nil {
				return fmt.Errorf("%s stays", p.Name)
			}
			found := false
			for _, c := range p.Status.Conditions {
				found = found || c.Type == corev1.DisruptionTarget && c.Reason == string(batch.ReasonQueueMaxDuration)
			}
			if !found {
				return fmt.Errorf("%s has conditions %v", p.Name, p.Status.Conditions)
			}
		}
		return nil
	})
}

// TestQueueRules are those that the API server itself holds.
func TestQueueRules(t *testing.T) {
	s := newStage(t)
	tests := map[string]struct {
		change func(*scheduling.Queue)
		ok     bool
	}{
		"nothing set":             {func(*scheduling.Queue) {}, true},
		"priority 100":            {func(q *scheduling.Queue) { q.Spec.Priority = 100 }, true},
		"priority 101":            {func(q *scheduling.Queue) { q.Spec.Priority = 101 }, false},
		"a duration":              {func(q *scheduling.Queue) { q.Spec.MaxDuration = "1w2d3h" }, true},
		"a duration out of order": {func(q *scheduling.Queue) { q.Spec.MaxDuration = "3h2d" }, false},
	}
	for name, test := range tests {
		q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{GenerateName: "rules-"}}
		test.change(q)
		if err := s.client.Create(t.Context(), q); (err == nil) != test.ok || err != nil && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pg := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "roles", Namespace: "default"},
		Spec: scheduling.PodGroupSpec{MinMember: 2, Roles: []scheduling.PodGroupRole{{Name: "a", MinMember: 2}, {Name: "b", MinMember: 1}}}}
	if err := s.client.Create(t.Context(), pg); !apierrors.IsInvalid(err) {
		t.Errorf("roles that ask for more than the group: %v", err)
	}
	if q := (&scheduling.Queue{}); s.client.Get(t.Context(), client.ObjectKey{Name: scheduling.DefaultQueue}, q) != nil || q.Spec.NamespaceSelector == nil {
		t.Error("there is no queue for everybody")
	}
}
