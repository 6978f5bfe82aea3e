package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// TestGangLostNode: the pods of a gang whose node is lost are replaced without charge. They wait together until there is a node,
// and say so.
func TestGangLostNode(t *testing.T) {
	requireCluster(t)
	t.Parallel()
	dropIns := t.TempDir()
	often := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeLeaseDurationSeconds: 4\nenforceNodeAllocatable: [none]\n"
	if err := os.WriteFile(filepath.Join(dropIns, "lease.conf"), []byte(often), 0o600); err != nil {
		t.Fatal(err)
	}
	c := ownCluster(t, testenv.Options{Args: map[string][]string{
		local.Kubelet:           {"--config-dir=" + dropIns},
		local.ControllerManager: {"--node-monitor-grace-period=5s", "--node-monitor-period=1s"},
		local.Operator:          {"--force-delete-after=" + time.Second.String()},
	}})
	s := c.space(t)
	q := s.queue("q", "100m")
	s.create(s.gang("lost", q, requesting(role("w", 2, obey), "40m")))
	s.awaitPhase("lost", batch.JobRunning)
	old := s.uidsOf(s.job("lost"))
	if err := c.env.StopComponent(local.Kubelet); err != nil {
		t.Fatal(err)
	}
	// Kubernetes takes no pods off its nodes while all of them are lost: somebody does.
	for name := range old {
		if err := s.client.Delete(t.Context(), s.podNow(name)); err != nil {
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
	s.checkSays([]string{"describe", "lost"}, "untolerated taint")
	s.awaitQueue(q, "nothing used", func(now *scheduling.QueueStatus) bool { return now.Allocated.Cpu().IsZero() && now.Pods.Pending == 2 })
	if err := c.env.StartComponent(local.Kubelet); err != nil {
		t.Fatal(err)
	}
	s.awaitStarts("lost-w-0", 2)
	s.awaitStarts("lost-w-1", 2)
	// What was left of the first pods on the node has ended, so nobody but the new ones takes orders.
	s.awaitPhase("lost", batch.JobRunning)
	s.finish("lost", "w", 2)
	if n := s.job("lost").Status.BackoffCount; n != 0 {
		t.Errorf("%d restarts were charged", n)
	}
}
