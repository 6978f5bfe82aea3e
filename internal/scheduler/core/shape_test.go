package core

import "testing"

// Clause 9, for pods that admission has not seen.
func TestPodsThatAreTooLargeWait(t *testing.T) {
	w := newWorld().addNode(100, "", "")
	q := w.queue("a", 0, 0)
	q.PodLimit = Resources{"cpu": 4, "memory": 1}
	large, fits := w.group("large", "a", 2, 5), w.group("fits", "a", 2, 4)
	mixed := w.group("mixed", "a", 2, 4)
	w.pod(mixed, "worker", 5)
	unlimited := w.group("unlimited", "b", 1, 5)
	w.queue("b", 0, 0)
	runs := w.group("runs", "a", 2, 5)
	w.run(runs, "n00", runs.Pods[0])
	d := w.round(t)
	for g, want := range map[*Group]struct {
		bound  int
		reason Reason
		extra  bool
	}{
		large: {0, PodTooLarge, false}, fits: {2, Scheduled, false}, mixed: {2, PodTooLarge, true}, unlimited: {1, Scheduled, false},
		runs: {1, PodTooLarge, false},
	} {
		if got := d[g.Name]; bound(g) != want.bound || got.Reason != want.reason || got.Extra != want.extra && want.reason != Scheduled {
			t.Errorf("%s: %d bound, %s (%v): %s", g.Name, bound(g), got.Reason, got.Extra, got.Message)
		}
	}
	if got, want := d["large"].Message, "pod large-worker-0 is too large for queue a: 5m cpu requested, 4m allowed"; got != want {
		t.Errorf("it is said: %s", got)
	}
}

func TestNothingStartsWhileTheLimitIsUnknown(t *testing.T) {
	w := newWorld().addNode(100, "", "")
	w.queue("a", 0, 0).Barred = "its limits are not known"
	g := w.group("g", "a", 1, 1)
	if d := w.round(t)["g"]; bound(g) != 0 || d.Reason != ShapeUnknown || d.Message != "its limits are not known" {
		t.Errorf("%d bound, %s: %s", bound(g), d.Reason, d.Message)
	}
}
