package queue

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func TestQueueMetrics(t *testing.T) {
	group := func(name, queue string, pending int32, scheduled metav1.ConditionStatus) *scheduling.PodGroup {
		g := &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: scheduling.PodGroupSpec{Queue: queue}}
		g.Status.Pending = pending
		if scheduled != "" {
			g.Status.Conditions = []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: scheduled}}
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
	if err := testutil.CollectAndCompare(newCollector(c), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
