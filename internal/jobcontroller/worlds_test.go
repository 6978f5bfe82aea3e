package jobcontroller_test

import (
	"testing"

	"tensorstack.dev/batch/internal/sim"
)

// TestReconcilerInSimulatedWorlds plays a few of the worlds of package sim, so that the reconciler is tested where it is written too.
func TestReconcilerInSimulatedWorlds(t *testing.T) {
	for seed := range uint64(300) {
		if err := sim.Run(1_000_000+seed, 120, nil); err != nil {
			t.Error(err)
		}
	}
}
