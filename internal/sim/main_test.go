package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes the garbage collector run less often, because a world is small and lives for milliseconds.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
