package sim

import (
	"flag"
	"runtime"
	"sync"
	"testing"
)

var (
	worlds = flag.Int("worlds", 1_000, "number of worlds to play")
	seed   = flag.Uint64("seed", 0, "play only this world")
)

// TestWorlds runs seeded worlds; a failure prints the seed that reproduces it.
func TestWorlds(t *testing.T) {
	const steps = 120
	if *seed != 0 {
		if err := Run(*seed, steps, t.Logf); err != nil {
			t.Fatal(err)
		}
		return
	}
	next := make(chan uint64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for s := range next {
				if err := Run(s, steps, nil); err != nil {
					t.Errorf("%v (again: go test ./internal/sim -seed %d)", err, s)
				}
			}
		})
	}
	for s := range *worlds {
		next <- uint64(s + 1)
	}
	close(next)
	wg.Wait()
}
