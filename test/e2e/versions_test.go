package e2e

import (
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/gate"
)

// TestJobsRunOnOlderKubernetes runs jobs of all kinds and a gang on API servers with the APIs and features of the
// supported versions before the version of the embedded cluster.
func TestJobsRunOnOlderKubernetes(t *testing.T) {
	for _, version := range []string{"1.33", "1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := ownCluster(t, testenv.Options{Args: map[string][]string{local.APIServer: {"--emulated-version=" + version}}})
			s := newSpaceOn(t, c)
			s.example("hello")
			s.awaitPhase("hello", batch.JobSucceeded)
			s.Create(s.gang("gang", s.queue("q", "4"), role("w", 2, gate.Obey)))
			s.finish("gang", "w", 2)
			pytorch, tensorflow := s.newPyTorch("ddp", role("worker", 2, gate.Obey)), s.newTensorFlow("tf", role("worker", 1, gate.Obey))
			s.Create(pytorch)
			s.Create(tensorflow)
			for _, replica := range []string{"ddp-worker-0", "ddp-worker-1", "tf-worker-0"} {
				s.order(replica, 0)
			}
			awaitPhase(s, pytorch, batch.JobSucceeded)
			awaitPhase(s, tensorflow, batch.JobSucceeded)
		})
	}
}
