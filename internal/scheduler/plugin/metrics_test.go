package plugin

import (
	"testing"
	"time"
)

func TestBusyClock(t *testing.T) {
	b := newBusyClock()
	if d := b.busy(time.Now()); d != 0 {
		t.Errorf("a planner that waits has been busy for %s", d)
	}
	b.begin()
	if d := b.busy(time.Now().Add(time.Minute)); d < time.Minute {
		t.Errorf("a planner that began a minute ago has been busy for %s", d)
	}
	b.end()
	if d := b.busy(time.Now().Add(time.Minute)); d != 0 {
		t.Errorf("a planner that waits again has been busy for %s", d)
	}
}
