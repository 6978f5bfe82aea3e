package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
)

func exampleGang(s *space) {
	s.awaitPhase("gang", batch.JobSucceeded)
	for rank := range 4 {
		s.checkLog(fmt.Sprintf("gang-worker-%d", rank), fmt.Sprintf("Replica %d starts with the 4 of its gang.\n", rank))
	}
	group := &scheduling.PodGroup{}
	if err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "gang"}, group); err != nil {
		s.Fatal(err)
	}
	if group.Spec.Priority != 10 || group.Spec.MinMember != 4 {
		s.Errorf("the group: %+v", group.Spec)
	}
}

// TestGangWithoutRoomDoesNotStartInPart verifies that no pod of a gang that does not fit onto the node starts, and that
// the job reports the reason.
func TestGangWithoutRoomDoesNotStartInPart(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("large", role("worker", 3, gate.Obey))
	j.Spec.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: scheduling.DefaultQueue}}
	half := s.allocatable()
	half.SetMilli(half.MilliValue() / 2)
	j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *half}
	s.Create(j)
	s.awaitReason("large", batch.ReasonImpossible, "2 of the 3 pods that must start together fit", "1 short")
	for _, p := range s.pods("large", "all", func(p []*corev1.Pod) bool { return len(p) == 3 }) {
		if p.Spec.NodeName != "" {
			t.Errorf("pod %s has a node", p.Name)
		}
	}
}
