package e2e

import (
	"cmp"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/gate"
)

// oldestVersion is the oldest supported version of Kubernetes.
const oldestVersion = "1.33"

// TestJobsRunOnOlderKubernetes verifies that jobs of all kinds and a gang run on an API server with the APIs and
// features of the oldest supported version, or of the version in the environment variable testenv.EmulateEnv. `make
// test-versions` runs the test for each older version.
func TestJobsRunOnOlderKubernetes(t *testing.T) {
	t.Parallel()
	version := cmp.Or(os.Getenv(testenv.EmulateEnv), oldestVersion)
	t.Run(version, func(t *testing.T) {
		t.Parallel()
		c := ownCluster(t, testenv.Options{Components: local.AllComponents(), Args: map[string][]string{local.APIServer: {"--emulated-version=" + version}}})
		s := newSpaceOn(t, c)
		// The webhook is in force as soon as the cluster is up.
		if err := s.Client.Create(t.Context(), s.newJob("bad", role("w", 1, "echo $(replicas[nobody])"))); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "$(replicas[nobody])") {
			t.Errorf("a bad job: %v", err)
		}
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
