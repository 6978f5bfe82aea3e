package scheduler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tensorstack.dev/batch/internal/local"
	"tensorstack.dev/batch/internal/testing/testenv"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/ledger"
	"tensorstack.dev/batch/test/kit/program"
)

var (
	kills   = flag.Int("kills", 6, "how often TestKilledSchedulerKeepsGangsAndQuotas kills the scheduler")
	leaders = flag.Int("leaders", 2, "how often TestSecondReplicaTakesOver kills the scheduler that leads")
	seed    = flag.Uint64("seed", 0, "take this order of events; 0: a random one, which is printed")
)

// seeded returns the source of a test's random choices, and logs its seed.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-seed %d", from)
	return rand.New(rand.NewPCG(from, 1))
}

// arrivals submits gangs of random sizes to one queue, and checks their pods with a ledger.
type arrivals struct {
	*stage
	ledger *ledger.Ledger
	random *rand.Rand
	queue  string
	sizes  map[string]int
	serial int
}

func newArrivals(s *stage, quota int) *arrivals {
	s.Helper()
	a := &arrivals{stage: s, random: seeded(s.T), queue: "limited", sizes: map[string]int{}}
	for i := range 4 {
		s.node(fmt.Sprintf("n%d", i), 10, nil)
	}
	s.queue(a.queue, fmt.Sprint(quota), 0)
	a.ledger = ledger.Start(s.Test, ledger.Rules{NodeCPU: 10_000, Quotas: map[string]int64{s.own(a.queue): int64(quota) * 1000}, PartFor: await.Patience / 2})
	return a
}

// submit creates n gangs of 1 to 12 pods, with 2 CPUs for each pod.
func (a *arrivals) submit(n int) {
	a.Helper()
	for range n {
		a.serial++
		name, size := fmt.Sprintf("g%02d", a.serial), 1+a.random.IntN(12)
		a.sizes[name] = size
		a.ledger.Expect(name, size)
		a.group(name, a.queue, size, "2")
	}
}

// whole returns a gang whose pods are all bound, or an empty string. The caller holds the ledger's lock.
func (a *arrivals) whole() string {
	for name, n := range a.sizes {
		if a.ledger.Bound(name) == n {
			return name
		}
	}
	return ""
}

// drain waits for each gang until all its pods are bound, and then deletes it.
func (a *arrivals) drain() {
	a.Helper()
	for len(a.sizes) > 0 {
		name := ""
		a.ledger.Await("another gang runs as a whole", func() bool {
			name = a.whole()
			return name != ""
		})
		a.finish(name)
	}
}

func (a *arrivals) finish(name string) {
	a.Helper()
	a.end(name)
	a.ledger.Forget(name)
	delete(a.sizes, name)
}

// maybeFinish deletes a gang whose pods are all bound, if there is one, in half of the calls.
func (a *arrivals) maybeFinish() {
	a.Helper()
	name := ""
	a.ledger.Do(func() { name = a.whole() })
	if name != "" && a.random.IntN(2) == 0 {
		a.finish(name)
	}
}

// TestKilledSchedulerKeepsGangsAndQuotas verifies that no gang remains partly bound, that the queue never exceeds its
// quota, and that every gang runs, while the test kills the scheduler repeatedly and gangs arrive and finish.
func TestKilledSchedulerKeepsGangsAndQuotas(t *testing.T) {
	a := newArrivals(quietStage(t), 30)
	for range *kills {
		a.submit(3)
		a.Must(a.Env.Kill(local.Scheduler))
		a.maybeFinish()
	}
	a.drain()
}

// TestSecondReplicaTakesOver verifies that one of two schedulers leads, and that the other one completes the leader's
// work after the leader is killed.
func TestSecondReplicaTakesOver(t *testing.T) {
	t.Parallel()
	s := newStageOf(t, testenv.Options{Components: []string{local.Etcd, local.APIServer, local.CRDs}})
	binary, err := testenv.Binary()
	s.Must(err)
	replicas := make([]*program.Program, 2)
	start := func(i int) {
		replicas[i], err = s.Launch(binary, "kube-scheduler", "--kubeconfig="+s.Env.Kubeconfig, "--secure-port=0", "--leader-elect",
			"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=500ms")
		s.Must(err)
	}
	leads := func(i int) bool {
		return strings.Contains(strings.ToLower(replicas[i].Log.String()), "successfully acquired lease")
	}
	awaitLeader := func(i int) {
		s.Await(fmt.Sprintf("replica %d leads", i), func() error {
			if !leads(i) {
				return fmt.Errorf("it does not lead")
			}
			return nil
		})
	}
	start(0)
	awaitLeader(0)
	start(1)
	a := newArrivals(s, 30)
	leader := 0
	for range *leaders {
		a.submit(3)
		a.ledger.Await("the scheduler binds pods", func() bool { return a.ledger.AnyBound() })
		if leads(1-leader) && replicas[leader].Running() { // a leader that loses its lease exits
			t.Error("both lead")
		}
		replicas[leader].Kill()
		leader = 1 - leader
		awaitLeader(leader)
		start(1 - leader)
		a.maybeFinish()
	}
	a.drain()
}
