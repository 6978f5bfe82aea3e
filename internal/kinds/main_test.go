package kinds

import (
	"runtime/debug"
	"testing"
)

// TestMain makes the garbage collector run less often, because each of the many jobs of a check lives for microseconds.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
