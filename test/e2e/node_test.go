package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// TestLostNode: §5. A pod that is stuck on a node is deleted by force and replaced when the node is known to be lost, and not
// before. With the kubelet's word once a second and the times below, what takes minutes elsewhere takes seconds.
func TestLostNode(t *testing.T) {
	requireCluster(t)
	t.Parallel()
	const forceAfter = 2 * time.Second
	dropIns := t.TempDir()
	often := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeLeaseDurationSeconds: 4\nenforceNodeAllocatable: [none]\n"
	if err := os.WriteFile(filepath.Join(dropIns, "lease.conf"), []byte(often), 0o600); err != nil {
		t.Fatal(err)
	}
	c := ownCluster(t, testenv.Options{Args: map[string][]string{
		local.Kubelet:           {"--config-dir=" + dropIns},
		local.ControllerManager: {"--node-monitor-grace-period=5s", "--node-monitor-period=1s"},
		local.Operator:          {"--force-delete-after=" + forceAfter.String()},
	}})
	s := c.space(t)
	worker := role("worker", 1, `trap 'echo left >> /gate/left; exit 0' TERM
		echo started >> /gate/$HOSTNAME.starts; read code < /gate/$HOSTNAME & wait $!; exit 0`)
	s.create(s.newJob("lost", worker))
	s.awaitStarts("lost-worker-0", 1)
	old := s.pod("lost-worker-0", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })

	// Without the controller manager nobody notices that the kubelet is away: the node stays Ready.
	for _, component := range []string{local.ControllerManager, local.Kubelet} {
		if err := c.env.StopComponent(component); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.client.Delete(t.Context(), s.podNow("lost-worker-0")); err != nil {
		t.Fatal(err)
	}
	stuck := s.podNow("lost-worker-0")
	<-time.After(time.Until(stuck.DeletionTimestamp.Add(2 * forceAfter)))
	if p := s.podNow("lost-worker-0"); p.UID != old.UID || *p.DeletionGracePeriodSeconds != *stuck.DeletionGracePeriodSeconds {
		t.Fatalf("a pod on a Ready node was deleted by force\n%s", s.dump())
	}

	if err := c.env.StartComponent(local.ControllerManager); err != nil {
		t.Fatal(err)
	}
	p := s.pod("lost-worker-0", "replaced", func(p *corev1.Pod) bool { return p.UID != old.UID })
	if attemptOf(p) != "1" {
		t.Errorf("the replacement is attempt %s", attemptOf(p))
	}
	s.awaitEvent("lost", batch.EventNodeLost, "lost-worker-0")
	if err := c.env.StartComponent(local.Kubelet); err != nil {
		t.Fatal(err)
	}
	s.awaitStarts("lost-worker-0", 2)
	s.awaitFile("left", "left")
	s.order("lost-worker-0", 0)
	if j := s.awaitPhase("lost", batch.JobSucceeded); j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts were charged", j.Status.BackoffCount)
	}
}

// awaitFile waits until a process of the test has written a text at the gate.
func (s *space) awaitFile(name, text string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(s.written(name), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("file %s holds %q, want %q\n%s", name, s.written(name), text, s.dump())
		}
	}
}
