package core

import (
	"runtime/debug"
	"testing"
)

// TestMain makes the garbage collector run less often, because a round allocates many small objects that live for
// microseconds.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
