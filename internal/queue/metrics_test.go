package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func TestQueueMetrics(t *testing.T) {
	group := func(name, queue string, pending int32, scheduled metav1.ConditionStatus) *scheduling.PodGroup {
		g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, CreationTimestamp: metav1.Now()}, Spec: scheduling.PodGroupSpec{Queue: queue}}
		g.Status.Pending = pending
		if scheduled != "" {
			g.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: scheduled, LastTransitionTime: metav1.Now()}}
		}
		return g
	}
	q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.Quota.Requests = corev1.ResourceList{"cpu": resource.MustParse("1500m")}
	q.Status.Allocated = corev1.ResourceList{"memory": resource.MustParse("1Ki")}
	q.Status.Pods.Pending, q.Status.Pods.Running = 3, 2
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(q,
		group("new", "q", 1, ""), group("waits", "q", 1, metav1.ConditionFalse), group("without-pods", "q", 0, metav1.ConditionFalse),
		group("restarts-one", "q", 1, metav1.ConditionTrue), group("lost", "no-such-queue", 1, metav1.ConditionFalse)).Build()
	want := `
# HELP t9k_queue_allocated Requests of the pods of a queue that are bound to a node and have not ended, in units of the resource.
# TYPE t9k_queue_allocated gauge
t9k_queue_allocated{queue="q",resource="memory"} 1024
# HELP t9k_queue_pending_groups PodGroups of a queue that have pods and wait to be scheduled.
# TYPE t9k_queue_pending_groups gauge
t9k_queue_pending_groups{queue="q"} 2
# HELP t9k_queue_pods Pods of a queue that have not ended, by their phase. Pods that are bound and whose containers have not started are Pending.
# TYPE t9k_queue_pods gauge
t9k_queue_pods{phase="Pending",queue="q"} 3
t9k_queue_pods{phase="Running",queue="q"} 2
# HELP t9k_queue_quota Quota of a queue, in units of the resource. A resource without quota has no value.
# TYPE t9k_queue_quota gauge
t9k_queue_quota{queue="q",resource="cpu"} 1.5
`
	names := []string{"t9k_queue_allocated", "t9k_queue_pending_groups", "t9k_queue_pods", "t9k_queue_quota"}
	if err := testutil.CollectAndCompare(newCollector(c), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestOldestPendingGroup(t *testing.T) {
	q, empty := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}
	group := func(name string, created, changed time.Duration, status metav1.ConditionStatus) *scheduling.PodGroup {
		g := &scheduling.PodGroup{Spec: scheduling.PodGroupSpec{Queue: "q"}}
		g.Namespace, g.Name, g.CreationTimestamp = "a", name, metav1.NewTime(time.Now().Add(-created))
		g.Status.Pending = 1
		if status != "" {
			g.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: status,
				LastTransitionTime: metav1.NewTime(time.Now().Add(-changed))}}
		}
		return g
	}
	// The group "restarts" ran for a day before it began to wait.
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(q, empty,
		group("runs", 100*time.Hour, 50*time.Hour, metav1.ConditionTrue), group("restarts", 24*time.Hour, time.Hour, metav1.ConditionFalse),
		group("new", 2*time.Hour, 0, "")).Build()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newCollector(c))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]time.Duration{}
	for _, f := range families {
		if f.GetName() == "t9k_queue_oldest_pending_group_seconds" {
			for _, m := range f.Metric {
				found[m.Label[0].GetValue()] = time.Duration(m.GetGauge().GetValue() * float64(time.Second)).Round(10 * time.Minute)
			}
		}
	}
	if len(found) != 2 || found["q"] != 2*time.Hour || found["empty"] != 0 {
		t.Errorf("the oldest groups have waited %v", found)
	}
}
