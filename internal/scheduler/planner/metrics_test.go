package planner

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestBusyClock(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	b := newBusyClock(now)
	if d := b.duration(); d != 0 {
		t.Errorf("a planner that waits has been busy for %s", d)
	}
	b.begin()
	now.SetTime(now.Now().Add(time.Minute))
	if d := b.duration(); d != time.Minute {
		t.Errorf("a planner that began a minute ago has been busy for %s", d)
	}
	b.end()
	if d := b.duration(); d != 0 {
		t.Errorf("a planner that waits again has been busy for %s", d)
	}
}
