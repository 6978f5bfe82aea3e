package scheduler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"tensorstack.dev/batch/internal/local"
)

var (
	kills = flag.Int("kills", 8, "how often TestKilled kills the scheduler")
	seed  = flag.Uint64("seed", 0, "take this order of events; 0: a random one, which is printed")
)

// TestKilled kills the scheduler again and again while gangs come and go. Afterwards no gang is bound in part, the quota has
// been kept throughout, and every gang has run.
func TestKilled(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 1))
	s := newStage(t)
	for i := range 4 {
		s.node(fmt.Sprintf("n%d", i), 10, nil)
	}
	const quota = 30
	s.queue("limited", fmt.Sprint(quota), 0)
	sizes := map[string]int{}
	serial := 0
	for range *kills {
		for range 3 {
			serial++
			name, n := fmt.Sprintf("g%02d", serial), 1+random.IntN(12)
			s.group(name, "limited", n, "2")
			sizes[name] = n
		}
		s.must(s.env.Kill(local.Scheduler))
		s.checkQuota(quota, 2)
		for name, n := range sizes { // what runs as a whole ends now and then
			if s.bound(name) == n && random.IntN(2) == 0 {
				s.end(name)
				delete(sizes, name)
			}
		}
	}
	for len(sizes) > 0 {
		s.await("a gang runs as a whole", func() error {
			s.checkQuota(quota, 2)
			for name, n := range sizes {
				if s.bound(name) == n {
					s.end(name)
					delete(sizes, name)
					return nil
				}
			}
			return fmt.Errorf("of %d gangs none does: %s", len(sizes), s.describe(sizes))
		})
	}
}

func (s *stage) describe(sizes map[string]int) (text string) {
	for name, n := range sizes {
		text += fmt.Sprintf("%s %d/%d %s; ", name, s.bound(name), n, s.condition(name).Message)
	}
	return text
}

// checkQuota counts the pods with a node.
func (s *stage) checkQuota(quota, each int) {
	s.Helper()
	used := 0
	for _, p := range s.all() {
		if p.Spec.NodeName != "" {
			used += each
		}
	}
	if used > quota {
		s.Fatalf("%d of the quota of %d are used", used, quota)
	}
}
