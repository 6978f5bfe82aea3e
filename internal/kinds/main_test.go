package kinds

import (
	"runtime/debug"
	"testing"
)

// TestMain makes the garbage collector run less often, because the tests create many short-lived objects.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	m.Run()
}
