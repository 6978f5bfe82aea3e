package scheduler

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/apiproxy"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/ledger"
	"tensorstack.dev/batch/test/kit/program"
	"tensorstack.dev/batch/test/kit/slowetcd"
)

// A table in docs/reliability.md lists the tests in this file. The tests with a simulated cluster log the figures that
// the table gives as measured.

var faults = flag.Bool("faults", false, "run the tests in which requests of the scheduler fail (make test-faults)")

// These are the sizes of the simulated clusters of these tests. They are crowded, so that the scheduler has to evict
// pods. slowWorld is smaller, because a slow etcd also slows down the requests of the test.
var (
	faultWorld = size{nodes: 6, nodeCPU: 8, gangs: 60, largest: 12, arrivals: 40, longest: 12, drainEvery: 12}
	slowWorld  = size{nodes: 4, nodeCPU: 8, gangs: 20, largest: 8, arrivals: 8, longest: 4, drainEvery: 6}
)

// startBehind starts a scheduler that reaches the API server through a proxy. The scheduler is killed with the
// control plane.
func (s *stage) startBehind(proxy *apiproxy.Proxy) *program.Program {
	s.Helper()
	binary, err := testenv.Binary()
	s.Must(err)
	settings, err := local.SchedulerSettings([]string{scheduling.SchedulerName}, "gangGracePeriod: 5s", "reserveAfter: 20s")
	s.Must(err)
	file := filepath.Join(s.TempDir(), "scheduler.yaml")
	s.Must(os.WriteFile(file, settings, 0o600))
	scheduler, err := s.Launch(binary, "kube-scheduler", "--kubeconfig="+proxy.Kubeconfig, "--config="+file, "--secure-port=0", "--leader-elect=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000", "--v=2")
	s.Must(err)
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("the scheduler's log ends with:\n%s", program.Tail(scheduler.Log.String()))
		}
	})
	return scheduler
}

// TestUnansweredBindingKeepsItsRoom verifies that the scheduler does not give the room of a pod to another pod if it
// gets no answer to the pod's binding and its watches do not show that the pod is bound.
func TestUnansweredBindingKeepsItsRoom(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}})
	s.node("n", 8, nil)
	s.queue("q", "", 0)
	accounts := ledger.Start(s.Test, ledger.Rules{NodeCPU: 8000, PartFor: await.Patience})
	s.group("a", "q", 1, "5")
	s.group("b", "q", 1, "5")
	proxy := apiproxy.Start(t, s.Env.Config)
	blind, bindings := false, 0
	proxy.Decide(func(r *http.Request) apiproxy.Fate {
		switch {
		case strings.HasSuffix(r.URL.Path, "/binding"):
			if bindings++; bindings == 1 {
				blind = true
				return apiproxy.Fate{Unanswered: true, Then: func() { proxy.BreakWatches() }}
			}
		case blind && apiproxy.IsWatch(r):
			return apiproxy.Fate{Lost: true}
		}
		return apiproxy.Fate{}
	})
	s.startBehind(proxy)
	s.Await("the scheduler asks for the pod, or binds the other one", func() error {
		asked := len(proxy.Seen(http.MethodGet, "/pods/a-0")) + len(proxy.Seen(http.MethodGet, "/pods/b-0"))
		if bindings := len(proxy.Seen(http.MethodPost, "/binding")); asked == 0 && bindings < 2 {
			return fmt.Errorf("it has made %d bindings", bindings)
		}
		return nil
	})
	proxy.Do(func() { blind = false })
	if n := len(proxy.Seen(http.MethodPost, "/binding")); n > 1 {
		t.Fatalf("the scheduler has made %d bindings to a node with room for one pod", n)
	}
	s.group("small", "q", 1, "2")
	s.awaitBound("small", 1)
	if n := s.bound("a") + s.bound("b"); n != 1 || accounts.Failed() {
		t.Errorf("%d pods of 5 CPUs are bound to a node of 8", n)
	}
}

// faulty is a simulated cluster whose scheduler reaches the API server through a proxy.
type faulty struct {
	*mix
	proxy     *apiproxy.Proxy
	scheduler *program.Program
}

func newFaulty(t *testing.T, world size) *faulty {
	t.Helper()
	if !*faults {
		t.Skip("lets requests of the scheduler fail while gangs run: make test-faults")
	}
	t.Parallel()
	s := newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}})
	s.Must(startKWOK(s.Plane))
	return &faulty{mix: newMix(s, world), proxy: apiproxy.Start(t, s.Env.Config)}
}

// start starts the scheduler.
func (f *faulty) start() {
	f.Helper()
	f.scheduler = f.startBehind(f.proxy)
}

// finish runs the simulated cluster to its end. It verifies that the rules of the ledger hold at all times, that every
// gang finishes, and that the scheduler has not exited.
func (f *faulty) finish() {
	f.Helper()
	f.run()
	if !f.scheduler.Running() {
		f.Error("the scheduler has ended")
	}
}

// TestGangsWithoutFault runs the load of the following tests without a fault. Its figures are the baseline for the
// figures of these tests.
func TestGangsWithoutFault(t *testing.T) {
	f := newFaulty(t, faultWorld)
	f.start()
	f.finish()
}

// TestGangsSurviveFailingWrites verifies that gangs survive if 5 % of the scheduler's writes fail, including bindings
// and evictions.
func TestGangsSurviveFailingWrites(t *testing.T) {
	f := newFaulty(t, faultWorld)
	counts := f.proxy.FailWrites(5)
	f.start()
	f.finish()
	writes, failed := counts()
	t.Logf("of %d writes failed %v", writes, failed)
	if len(failed) == 0 {
		t.Error("no write failed")
	}
}

// TestGangsSurviveLostWatches verifies that gangs survive if all watches of the scheduler are repeatedly closed while
// gangs arrive. Every other time, the next watches are answered with 410 Gone, so that the scheduler must list
// everything.
func TestGangsSurviveLostWatches(t *testing.T) {
	f := newFaulty(t, faultWorld)
	f.start()
	lost := f.proxy.LoseWatches(t, 300*time.Millisecond)
	f.arrived = lost.Stop
	f.finish()
	ended, refused := lost.Counts()
	t.Logf("%d watches were ended, and %d were answered with 410", ended, refused)
	if ended == 0 || refused == 0 {
		t.Error("no watch was lost")
	}
}

// TestGangsSurviveSlowEtcd verifies that gangs survive if every request to etcd takes 100 ms longer.
func TestGangsSurviveSlowEtcd(t *testing.T) {
	f := newFaulty(t, slowWorld)
	slowetcd.Start(f.Test, 50*time.Millisecond)
	f.start()
	f.finish()
}
