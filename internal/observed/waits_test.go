package observed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

// TestWaits verifies, for several states, what Waits returns for a job whose two workers are both in that state.
func TestWaits(t *testing.T) {
	pod := func(rank, node string, status corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job-worker-" + rank, UID: types.UID(rank), Labels: map[string]string{scheduling.LabelGroupName: "job"}},
			Spec: corev1.PodSpec{NodeName: node}, Status: status}
	}
	unscheduled := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}}
	pulling := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "main",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}}
	group := func(name, message string, age int64) *scheduling.PodGroup {
		return &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Unix(100-age, 0)}, Spec: scheduling.PodGroupSpec{Queue: "q", MinMember: 2},
			Status: scheduling.PodGroupStatus{Conditions: []scheduling.PodGroupCondition{{Type: scheduling.GroupScheduled, Status: metav1.ConditionFalse, Message: message}}}}
	}
	ahead := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ahead-worker-0", Labels: map[string]string{scheduling.LabelGroupName: "ahead"}}}
	for name, test := range map[string]struct {
		phase    batch.ReplicaPhase
		reason   string
		pods     []*corev1.Pod
		groups   []*scheduling.PodGroup
		unplaced []*corev1.Pod
		want     []Wait
	}{
		"running":                     {phase: batch.ReplicaRunning, pods: []*corev1.Pod{pod("0", "n", corev1.PodStatus{}), pod("1", "n", corev1.PodStatus{})}},
		"without pods":                {phase: batch.ReplicaCreating, want: []Wait{{"worker-0, worker-1", "the operator to create its pod", ""}}},
		"without nodes":               {phase: batch.ReplicaCreating, pods: []*corev1.Pod{pod("0", "", unscheduled), pod("1", "", unscheduled)}, want: []Wait{{"worker-0, worker-1", "a node", "0/3 nodes are available"}}},
		"without an image":            {phase: batch.ReplicaPending, pods: []*corev1.Pod{pod("0", "n", pulling), pod("1", "n", pulling)}, want: []Wait{{"worker-0, worker-1", "its containers to start", "ImagePullBackOff: no such image"}}},
		"with the delay of a restart": {phase: batch.ReplicaCreating, reason: engine.ReasonBackOff, want: []Wait{{"worker-0, worker-1", "its restart", "Its last attempt has ended, and the delay before the next one is not over."}}},
		"with its group, which is 2nd": {phase: batch.ReplicaCreating, pods: []*corev1.Pod{pod("0", "", unscheduled), pod("1", "", unscheduled)},
			groups:   []*scheduling.PodGroup{group("job", "4 GPUs needed, 1 of 8 left", 1), group("ahead", "8 GPUs needed, 1 of 8 left", 2)},
			unplaced: []*corev1.Pod{pod("0", "", unscheduled), pod("1", "", unscheduled), ahead},
			want: []Wait{{"the group of its pods", "room in queue q", "4 GPUs needed, 1 of 8 left"}, {"the group of its pods", "its turn", ""},
				{"ns/ahead, which is ahead", "room in queue q", "8 GPUs needed, 1 of 8 left"}}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batch.GenericJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}, Status: batch.GenericJobStatus{JobStatus: batch.JobStatus{Phase: batch.JobPending,
				Tasks: []batch.Tasks{{Type: "worker", Replicas: []batch.ReplicaStatus{
					{Name: "job-worker-0", UID: "0", Phase: test.phase, Reason: test.reason}, {Name: "job-worker-1", UID: "1", Phase: test.phase, Reason: test.reason}}}}}}}
			got := Waits(&Job{Kind: kindtest.Named("GenericJob"), Object: job}, test.pods, test.groups, test.unplaced, false)
			for i := range got {
				if got[i].For == "its turn" {
					got[i].Why = "" // other tests check the place
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("waits (-want +got)\n%s", diff)
			}
		})
	}
}
