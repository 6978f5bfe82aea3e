package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/test/kit/gate"
)

// TestGangOnALostNodeIsReplacedTogether verifies that the pods of a gang whose node is lost are replaced without a
// charge. The replacements wait together until there is a node, and the job reports that.
func TestGangOnALostNodeIsReplacedTogether(t *testing.T) {
	s := lend(t, quick)
	q := s.queue("q", "100m")
	worker := requesting(role("w", 2, gate.Obey), "40m")
	worker.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: spaceEnv, Value: s.Namespace}}
	s.Create(s.gang("lost", q, worker))
	s.awaitPhase("lost", batch.JobRunning)
	old := s.uidsOf(s.job("lost"))
	var left []process
	for name := range old {
		s.awaitStarts(name, 1)
		left = append(left, s.mainProcess(name))
	}
	if err := s.Env.StopComponent(local.Kubelet); err != nil {
		t.Fatal(err)
	}
	// Kubernetes evicts no pods while all nodes are lost, so the test deletes them.
	for name := range old {
		if err := s.Client.Delete(t.Context(), s.podNow(name)); err != nil {
			t.Fatal(err)
		}
	}
	s.pods("lost", "replaced", func(pods []*corev1.Pod) bool {
		for _, p := range pods {
			if old[p.Name] == string(p.UID) {
				return false
			}
		}
		return len(pods) == 2
	})
	s.awaitWaits("lost", scheduling.ReasonNoRoom, "0 of the 2 pods that must start together fit", "untolerated taint")
	s.awaitEvent("lost", batch.EventNodeLost, "lost-w-0")
	s.checkNoNode("lost")
	s.checkOutput([]string{"describe", "lost"}, "untolerated taint")
	s.awaitQueue(q, "nothing used", func(now *scheduling.QueueStatus) bool { return now.Allocated.Cpu().IsZero() && now.Pods.Pending == 2 })
	if err := s.Env.StartComponent(local.Kubelet); err != nil {
		t.Fatal(err)
	}
	for name := range old {
		s.awaitStarts(name, 2)
	}
	s.awaitEnded(left...) // so that only the new processes take orders
	s.awaitPhase("lost", batch.JobRunning)
	s.finish("lost", "w", 2)
	if n := s.job("lost").Status.BackoffCount; n != 0 {
		t.Errorf("%d restarts were charged", n)
	}
}
