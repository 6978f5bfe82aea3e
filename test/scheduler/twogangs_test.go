package scheduler

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/ledger"
)

var twoGangs = flag.Int("two-gangs", 10, "how often TestOneOfTwoGangsRunsAtATime submits two gangs that each need 60 % of the nodes")

// TestOneOfTwoGangsRunsAtATime verifies that two gangs that each need 60 % of the nodes, and that are repeatedly
// submitted together, run one after the other: until one of them is bound as a whole, the other one has no bound pod.
func TestOneOfTwoGangsRunsAtATime(t *testing.T) {
	s := sharedStage(t)
	for i := range 5 {
		s.node(fmt.Sprintf("n%d", i), 10, nil)
	}
	s.queue("two", "", 0)
	l := ledger.Start(s.Test, ledger.Rules{NodeCPU: 10_000, Quotas: nil, PartFor: await.Patience})
	var a, b string
	ending := false
	l.CheckAlso(func() string {
		if ending {
			return ""
		}
		if na, nb := l.Bound(a), l.Bound(b); na > 0 && nb > 0 {
			return fmt.Sprintf("%d pods of %s and %d of %s are bound", na, a, nb, b)
		}
		return ""
	})
	began, firsts := time.Now(), 0
	for round := range *twoGangs {
		l.Do(func() {
			ending = false
			a, b = fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)
		})
		var both sync.WaitGroup
		for _, name := range []string{a, b} {
			l.Expect(name, 6)
			both.Go(func() { s.group(name, "two", 6, "5") })
		}
		both.Wait()
		first, second := a, b
		l.Await("one of the gangs runs", func() bool {
			if l.Bound(b) > 0 {
				first, second = b, a
			}
			ending = l.Bound(first) == 6 // from now on, the gang is deleted pod by pod, and both may have bound pods
			return ending
		})
		if first == a {
			firsts++
		}
		if round%10 == 0 {
			s.awaitRefused(second, scheduling.ReasonNoRoom)
		}
		s.end(first)
		l.Await("the other gang runs", func() bool { return l.Bound(second) == 6 })
		s.end(second)
		l.Forget(a)
		l.Forget(b)
	}
	t.Logf("%d rounds in %s; the first one by name ran first in %d", *twoGangs, time.Since(began).Round(time.Second), firsts)
}
