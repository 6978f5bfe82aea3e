package top

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/cli/view"
)

func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for part := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(part, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

func pod(node string, phase corev1.PodPhase, requests string, change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{}, Annotations: map[string]string{}}}
	p.Spec.NodeName, p.Status.Phase = node, phase
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: amounts(requests)}}}
	if change != nil {
		change(&p)
	}
	return p
}

func node(name, allocatable string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = amounts(allocatable)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// TestTablesSumWhatPodsRequest verifies the sums in the three tables: they contain the pods that occupy a node,
// including bound pods that do not run yet, but neither finished pods nor pods without a node.
func TestTablesSumWhatPodsRequest(t *testing.T) {
	gone := node("n2", "cpu=4 memory=8Gi")
	gone.Spec.Unschedulable = true
	gone.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	queue := func(name, quota string, closed bool) scheduling.Queue {
		q := scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if quota != "" {
			q.Spec.Quota.Requests = amounts(quota)
		}
		q.Spec.Closed = closed
		return q
	}
	group := scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", Annotations: map[string]string{
		scheduling.AnnotationRequestedBy: `["alice","team"]`}}}
	group.Spec.Queue = "small"
	ofGroup := func(p *corev1.Pod) {
		p.Labels[scheduling.LabelGroupName], p.Spec.SchedulerName = "job", scheduling.SchedulerName
	}
	all := count(
		[]corev1.Node{node("n1", "cpu=8 memory=16Gi nvidia.com/gpu=4"), gone},
		[]scheduling.Queue{queue("small", "cpu=4 nvidia.com/gpu=2", true), queue("default", "", false)},
		[]scheduling.PodGroup{group},
		[]corev1.Pod{
			pod("n1", corev1.PodRunning, "cpu=1500m memory=1Gi nvidia.com/gpu=1", ofGroup),
			pod("n1", corev1.PodPending, "cpu=500m nvidia.com/gpu=1", ofGroup), // it is bound and occupies its node
			pod("n2", corev1.PodRunning, "cpu=4", nil),
			pod("n1", corev1.PodRunning, "memory=512Mi", func(p *corev1.Pod) {
				p.Spec.SchedulerName, p.Annotations[scheduling.AnnotationRequestedBy] = scheduling.SchedulerName, `["bob"]`
			}),
			pod("n1", corev1.PodSucceeded, "cpu=8", ofGroup),
			pod("", corev1.PodPending, "cpu=8", ofGroup),
		})
	var got []string
	for _, t := range []view.Table{all.nodes.table("NODE", all.columns()), all.queues.table("QUEUE", all.columns()), all.users.table("USER", all.columns())} {
		got = append(append(got, t.Lines(view.Style{}, "", 0)...), "")
	}
	want := strings.Split(strings.TrimPrefix(`
NODE   PODS   NVIDIA.COM/GPU   CPU        MEMORY
n1     3      2/4  50%         2/8  25%   1.5Gi/16.0Gi   9%
n2     1      -                4/4 100%   0.0Gi/8.0Gi   0%    cordoned, not ready
all    4      2/4  50%         6/12  50%  1.5Gi/24.0Gi   6%

QUEUE     PODS   NVIDIA.COM/GPU   CPU        MEMORY
default   1      -                -          0.5Gi
small     2      2/2 100%         2/4  50%   1.0Gi    closed
all       3      2                2          1.5Gi

USER             PODS   NVIDIA.COM/GPU   CPU   MEMORY
(not recorded)   1      -                4     -
alice            2      2                2     1.0Gi
bob              1      -                -     0.5Gi
all              4      2                6     1.5Gi
`, "\n"), "\n")
	squeeze := func(lines []string) string {
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return strings.Join(lines, "\n")
	}
	if diff := cmp.Diff(squeeze(want), squeeze(got)); diff != "" {
		t.Errorf("the tables are not as expected (-want +got):\n%s", diff)
	}
}
