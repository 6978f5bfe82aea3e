package scheduler

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/ledger"
)

// TestGroupBeyondQuotaWaitsUntilTheQuotaIsRaised verifies that a group that exceeds the quota reports the amounts, and
// that quotas can be raised, and can be lowered below the current use.
func TestGroupBeyondQuotaWaitsUntilTheQuotaIsRaised(t *testing.T) {
	s := sharedStage(t)
	s.simulated("n", 50)
	s.queue("q", "10", 0)
	says := func(group, numbers string) {
		t.Helper()
		s.awaitRefused(group, scheduling.ReasonQuotaExceeded)
		if want := fmt.Sprintf("the quota of queue %s does not allow it: %s", s.own("q"), numbers); s.condition(group).Message != want {
			t.Errorf("%s has the message %q, want %q", group, s.condition(group).Message, want)
		}
	}
	s.group("runs", "q", 2, "4")
	s.awaitBound("runs", 2)
	s.group("waits", "q", 2, "2")
	says("waits", "4 cpu needed, 2 of 10 left")
	s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Quota.Requests = cpus("12") })
	s.awaitBound("waits", 2)
	s.changeQueue("q", func(q *scheduling.QueueSpec) { q.Quota.Requests = cpus("9") })
	s.group("late", "q", 1, "500m")
	says("late", "500m cpu needed, 0 of 9 left")
	if n := s.bound("runs") + s.bound("waits"); n != 4 {
		t.Errorf("%d of the 4 pods that ran before the quota was lowered are bound", n)
	}
	s.end("waits")
	s.awaitBound("late", 1)
}

// TestConcurrentGangsStayWithinQuota verifies that the queue never exceeds its quota if many gangs arrive at once, and
// that all gangs run.
func TestConcurrentGangsStayWithinQuota(t *testing.T) {
	s := sharedStage(t)
	for i := range 4 {
		s.simulated(fmt.Sprintf("n%d", i), 50)
	}
	const quota, gangs = 20, 30
	s.queue("q", fmt.Sprint(quota), 0)
	l := ledger.Start(s.Test, ledger.Rules{NodeCPU: 50_000, Quotas: map[string]int64{s.own("q"): quota * 1000}, PartFor: await.Patience})
	random := rand.New(rand.NewPCG(1, 2))
	sizes := map[string]int{}
	var all sync.WaitGroup
	for i := range gangs {
		name, n, cpu := fmt.Sprintf("g%d", i), 1+random.IntN(4), fmt.Sprint(1+random.IntN(3))
		sizes[name] = n
		l.Expect(name, n)
		all.Go(func() { s.group(name, "q", n, cpu) })
	}
	all.Wait()
	for len(sizes) > 0 {
		done := ""
		l.Await("another gang runs", func() bool {
			for name, n := range sizes {
				if l.Bound(name) == n {
					done = name
				}
			}
			return done != ""
		})
		s.end(done)
		l.Forget(done)
		delete(sizes, done)
	}
	if peak := l.Peak(s.own("q")); peak < quota*1000-3000 {
		t.Errorf("at most %dm of %d CPUs were used, so the test proves nothing", peak, quota)
	}
}
