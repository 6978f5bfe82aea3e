package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/audit"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// statusWrites is an audit policy that logs each write of the status of a queue or a group.
const statusWrites = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [patch, update]
  resources: [{group: scheduler.tensorstack.dev, resources: [queues/status, podgroups/status]}]
- level: None
`

func (s *stage) awaitQueue(name string, is func(*scheduling.QueueStatus) bool) {
	s.Helper()
	s.Await("the status of queue "+name, func() error {
		q := &scheduling.Queue{}
		s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: s.own(name)}, q))
		if !is(&q.Status) {
			return fmt.Errorf("%+v", q.Status)
		}
		return nil
	})
}

// TestStatusOfQueuesAndGroupsIsKept verifies that the operator creates the default queue, keeps the status of queues
// and groups up to date, and deletes pods that are older than their queue's maxDuration.
func TestStatusOfQueuesAndGroupsIsKept(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, testenv.Options{Components: append(slices.Clone(withScheduler), local.Operator), AuditPolicy: statusWrites})
	s.Must(s.Env.StopComponent(local.Operator))
	s.Must(s.Client.Delete(t.Context(), &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: scheduling.DefaultQueue}}))
	s.Must(s.Env.StartComponent(local.Operator))
	s.Await("the operator creates the default queue", func() error {
		return s.Client.Get(t.Context(), client.ObjectKey{Name: scheduling.DefaultQueue}, &scheduling.Queue{})
	})
	s.node("n", 10, nil)
	s.queue("counted", "8", 0)
	s.group("runs", "counted", 2, "3")
	s.awaitBound("runs", 2)
	s.group("waits", "counted", 2, "2")
	s.awaitQueue("counted", func(q *scheduling.QueueStatus) bool {
		return q.PodGroups.Total == 2 && q.Pods.Pending == 4 && q.Allocated.Cpu().Value() == 6
	})
	s.Await("the group's status is complete", func() error {
		pg := &scheduling.PodGroup{}
		s.Must(s.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "runs"}, pg))
		if pg.Status.Allocated.Cpu().Value() != 6 || pg.Status.Pending != 2 || len(pg.Status.Conditions) != 2 {
			return fmt.Errorf("%+v", pg.Status)
		}
		for _, c := range pg.Status.Conditions {
			if c.Reason == "" || c.TransitionID == "" {
				return fmt.Errorf("condition without reason or transition ID: %+v", c)
			}
		}
		return nil
	})
	s.awaitReason("waits", scheduling.ReasonQuotaExceeded)
	s.checkLines(s.t9k("queue", "describe", "counted"), "Pods 0 running, 4 pending, 0 succeeded, 0 failed", "cpu 6 of 8 [###############.....] 75 %", "Namespaces all")
	s.checkLines(s.t9k("queue", "describe", "counted"), "GROUP RUNNING PRIORITY AGE ALLOCATED")
	if text := s.t9k("queue", "describe", "counted"); !strings.Contains(text, "default/waits") || !strings.Contains(text, "4 cpu needed, 2 of 8 left") {
		t.Errorf("the output lacks the waiting groups:\n%s", text)
	}
	if text := s.t9k("queue", "list"); !strings.Contains(text, "counted") || !strings.Contains(text, "6/8") || !strings.Contains(text, "default") {
		t.Errorf("the list of queues:\n%s", text)
	}
	s.overQuota("counted", "n")
	s.changeQueue("counted", func(q *scheduling.QueueSpec) { q.MaxDuration = "1ms" })
	s.Await("the operator deletes pods that are too old", func() error {
		for _, p := range append(s.pods("runs"), s.pods("waits")...) {
			if p.DeletionTimestamp == nil && p.Spec.NodeName != "" {
				return fmt.Errorf("%s still exists", p.Name)
			}
			if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Reason == string(batch.ReasonQueueMaxDuration)
			}) {
				return fmt.Errorf("%s has conditions %v", p.Name, p.Status.Conditions)
			}
		}
		return nil
	})
	s.coalesced()
}

// overQuota binds a pod of another scheduler in a queue that uses 6 of 8 CPUs, and checks that the queue reports that
// it exceeds its quota, until the pod is deleted.
func (s *stage) overQuota(queue, node string) {
	s.Helper()
	within := func(status metav1.ConditionStatus, words string) {
		s.Helper()
		s.awaitQueue(queue, func(q *scheduling.QueueStatus) bool {
			return slices.ContainsFunc(q.Conditions, func(c scheduling.QueueCondition) bool {
				return c.Type == scheduling.QueueWithinQuota && c.Status == status && strings.Contains(c.Message, words)
			})
		})
	}
	within(metav1.ConditionTrue, "")
	guest := podOf(map[string]string{scheduling.LabelQueue: s.own(queue)})
	guest.Name, guest.GenerateName, guest.Namespace, guest.Spec.SchedulerName = "guest", "", "default", "another"
	guest.Spec.Containers[0].Resources.Requests = cpus("3")
	s.Must(s.Client.Create(s.Context(), guest))
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: guest.Name, Namespace: guest.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: s.own(node)}}
	s.Must(s.Core.CoreV1().Pods(guest.Namespace).Bind(s.Context(), binding, metav1.CreateOptions{}))
	within(metav1.ConditionFalse, "9 of 8 cpu. Pods that need more of it wait until others have ended. Another scheduler placed 1 of them.")
	s.Must(s.Client.Delete(s.Context(), guest, client.GracePeriodSeconds(0)))
	within(metav1.ConditionTrue, "")
}

// coalesced verifies that the status becomes exact with far fewer writes than changes when many pods change at once.
func (s *stage) coalesced() {
	s.Helper()
	const pods = 100
	began := time.Now()
	s.queue("busy", "", 0)
	s.node("large", 100, nil)
	s.group("many", "busy", pods, "100m")
	s.awaitQueue("busy", func(q *scheduling.QueueStatus) bool {
		return q.Pods.Pending == pods && q.Allocated.Cpu().Value() == pods/10
	})
	for i := range pods {
		s.succeed(fmt.Sprintf("many-%d", i))
	}
	s.awaitQueue("busy", func(q *scheduling.QueueStatus) bool { return q.Pods.Succeeded == pods && q.Allocated.Cpu().IsZero() })
	events, err := audit.Open(s.Env.AuditLog).Next()
	s.Must(err)
	writes := 0
	for _, e := range events {
		if e.Name == "busy" && e.Resource == "queues/status" {
			writes++
		}
	}
	const changes = 3 * pods // each pod is created, is bound and terminates
	slow := int(max(0, time.Since(began)-20*time.Second) / time.Second)
	// The operator writes a status at most three times a second.
	if writes == 0 || writes > changes/5+3*slow && writes > changes/2 {
		s.Errorf("%d changes of the queue's pods took %d writes of its status", changes, writes)
	}
	s.Logf("%d changes of the queue's pods took %d writes of its status", 3*pods, writes)
}

// TestAPIServerValidatesQueuesAndGroups verifies rules for queues and groups that the API server enforces without the
// operator, and that the default queue has a namespaceSelector.
func TestAPIServerValidatesQueuesAndGroups(t *testing.T) {
	s := sharedStage(t)
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
		if err := s.Client.Create(t.Context(), q); (err == nil) != test.ok || err != nil && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pg := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "roles", Namespace: s.Namespace},
		Spec: scheduling.PodGroupSpec{MinMember: 2, Roles: []scheduling.PodGroupRole{{Name: "a", MinMember: 2}, {Name: "b", MinMember: 1}}}}
	if err := s.Client.Create(t.Context(), pg); !apierrors.IsInvalid(err) {
		t.Errorf("roles that ask for more than the group: %v", err)
	}
	if q := (&scheduling.Queue{}); s.Client.Get(t.Context(), client.ObjectKey{Name: scheduling.DefaultQueue}, q) != nil || q.Spec.NamespaceSelector == nil {
		t.Error("no queue is open to all namespaces")
	}
}
