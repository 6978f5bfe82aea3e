package e2e

import (
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
)

// olderVersions are the supported versions of Kubernetes before the one that the embedded cluster is built from.
var olderVersions = []string{"1.33", "1.34", "1.35"}

// TestOlderKubernetes runs a job and a gang against API servers that have the APIs and features of an older version.
func TestOlderKubernetes(t *testing.T) {
	for _, version := range olderVersions {
		t.Run(version, func(t *testing.T) {
			c := ownCluster(t, testenv.Options{Args: map[string][]string{local.APIServer: {"--emulated-version=" + version}}})
			s := c.space(t)
			s.example("hello")
			s.awaitPhase("hello", batch.JobSucceeded)
			queue := s.queue("q", "4")
			s.gang("gang", queue, role("w", 2, obey))
			s.finish("gang", "w", 2)
		})
	}
}
