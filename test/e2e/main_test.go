package e2e

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/require"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/plane"
)

// parallelTests is the number of tests that run at the same time. They mostly wait, but with more tests, two cores take
// seconds to start a pod.
const parallelTests = 10

func TestMain(m *testing.M) {
	plane.Main(m, parallelTests, shared, fragile, quick, timed, torchCluster)
}

var faults = flag.Bool("faults", false, "run the tests that kill and stop components again and again (make test-faults)")

// requireFaults skips the test unless the fault suite is enabled.
func requireFaults(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("kills and stops components while jobs run: make test-faults")
	}
}

// restartBackoff is the base of the delay between restarts, instead of 10 s, on the clusters that do not set another
// one.
const restartBackoff = "1s"

var (
	// shared is the cluster of most tests.
	shared = plane.NewShared(func() (*plane.Plane, error) { return newCluster(testenv.Options{}) })
	// fragile holds clusters for tests that stop and kill components. A test has its cluster to itself. The delays are
	// short, so that many things happen between two kills. On these clusters, the console must also become ready again.
	fragile = plane.NewPool(2, func() (*plane.Plane, error) {
		return newCluster(testenv.Options{Components: local.AllComponents(), Settings: map[string][]string{
			local.Operator:  {"jobs: {restartBackoff: 10ms, logReadTime: 0s}"},
			local.Scheduler: {"gangGracePeriod: 1s"},
		}})
	})
	// timed is the cluster for tests of the operator's delays, which are long enough to be measured, or short enough
	// for a test to wait for them.
	timed = plane.NewShared(func() (*plane.Plane, error) {
		return newCluster(testenv.Options{Settings: map[string][]string{local.Operator: {
			"jobs: {restartBackoff: " + restartDelay.String() + "}", "tensorBoards: {idleAfter: 5s, suspendAfter: 30s}"}}})
	})
	// quick holds the cluster whose kubelet reports its node and measures volumes every second, so that a lost node or
	// a volume over its limit is detected in seconds rather than minutes. A test may take its node down.
	quick = plane.NewPool(1, func() (*plane.Plane, error) {
		dropIns, err := os.MkdirTemp("", "t9k-e2e-")
		if err != nil {
			return nil, err
		}
		often := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeLeaseDurationSeconds: 4\nvolumeStatsAggPeriod: 1s\nenforceNodeAllocatable: [none]\n"
		if err := os.WriteFile(filepath.Join(dropIns, "lease.conf"), []byte(often), 0o600); err != nil {
			return nil, err
		}
		c, err := newCluster(testenv.Options{Args: map[string][]string{
			local.Kubelet:           {"--config-dir=" + dropIns},
			local.ControllerManager: {"--node-monitor-grace-period=5s", "--node-monitor-period=1s"},
		}, Settings: map[string][]string{local.Operator: {"jobs: {forceDeleteAfter: " + forceDeleteAfter.String() + "}"}}})
		if err == nil {
			c.OnStop(func() { os.RemoveAll(dropIns) })
		}
		return c, err
	})
)

// forceDeleteAfter is the operator's time limit on the cluster quick for pods that do not terminate on a lost node.
const forceDeleteAfter = 2 * time.Second

// lend returns a new namespace on a cluster from a pool. The test has the cluster to itself, and runs in parallel with
// others.
func lend(t *testing.T, clusters *plane.Pool) *space {
	t.Helper()
	requireCluster(t)
	return newSpaceOn(t, clusters.Lend(t))
}

// newCluster starts an embedded cluster. o.Settings takes precedence over the settings that all clusters of these tests
// share. The console runs only if o.Components contains it, because most tests do not use it and it watches everything
// that they do.
func newCluster(o testenv.Options) (*plane.Plane, error) {
	if len(o.Components) == 0 {
		o.Components = local.WithoutConsole()
	}
	settings := map[string][]string{}
	maps.Copy(settings, o.Settings)
	settings[local.Operator] = append([]string{"jobs: {restartBackoff: " + restartBackoff + "}"}, settings[local.Operator]...)
	o.Settings = settings
	return plane.New(o)
}

// requireCluster skips the test unless this machine can run pods. If all requirements must be met, it fails the test
// instead.
func requireCluster(t testing.TB) {
	t.Helper()
	if err := local.CheckPodSupport(); err != nil {
		require.Missing(t, err.Error())
	}
}

// ownCluster starts a cluster for a test that needs other settings of its components, and stops it when the test ends.
func ownCluster(t testing.TB, o testenv.Options) *plane.Plane {
	t.Helper()
	requireCluster(t)
	c, err := newCluster(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}
