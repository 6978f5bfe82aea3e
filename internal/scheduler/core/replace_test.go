package core

import "testing"

// TestReplacementGetsRoomThatEnds verifies that the room of a terminating pod of a gang is kept for its replacement. A
// group of a queue with a higher priority, which may evict the pods of other queues, must not get that room, neither
// before nor after the replacement exists.
func TestReplacementGetsRoomThatEnds(t *testing.T) {
	w := newWorld().addNode(4, "", "").addNode(1, "", "")
	w.queue("low", 0, 0).Preemptible = false
	w.queue("other", 0, 0)
	w.queue("high", 0, 2)
	short := w.run(w.group("short", "low", 2, 2), "n00")
	short.Pods[1].Ending = true
	w.run(w.group("other", "other", 1, 1), "n01")
	first := w.group("first", "high", 1, 2)
	if d := w.round(t)["first"]; d.Reservation != nil {
		t.Errorf("before the replacement exists, its room is reserved for another group: %s", d.Message)
	}
	w.pod(short, "worker", 2)
	d := w.round(t)
	if d["short"].Reason != Reserved || d["first"].Reason != NoRoom || len(d["first"].Evict) > 0 {
		t.Errorf("short waits for %s: %s; first waits for %s: %s", d["short"].Reason, d["short"].Message, d["first"].Reason, d["first"].Message)
	}
	w.end(short.Pods[1])
	w.round(t)
	if bound(short) != 2 || bound(first) != 0 {
		t.Errorf("bound: short %d, first %d", bound(short), bound(first))
	}
}
