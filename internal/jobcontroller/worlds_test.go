package jobcontroller_test

import (
	"testing"

	"tensorstack.dev/batch/internal/sim"
)

// TestReconcilerKeepsItsInvariantsInSimulatedWorlds runs a few simulated worlds, so that the tests of this package
// cover the reconciler. TestWorlds of package sim simulates more of them.
func TestReconcilerKeepsItsInvariantsInSimulatedWorlds(t *testing.T) {
	for seed := range uint64(300) {
		if err := sim.Run(1_000_000+seed, 120, nil); err != nil {
			t.Error(err)
		}
	}
}
