package core

import "testing"

// TestPodsThatAreTooLargeWait verifies that a pod above the pod limit of its queue does not start, even if admission
// has not checked it.
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
		t.Errorf("the message is: %s", got)
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

// TestRandomPodLimitsAreKept verifies that the pod limits of random clusters are kept while they change continuously.
// No pod above the limit may get room, now or later, or evict another pod. Once the limits are removed, all work must
// finish.
func TestRandomPodLimitsAreKept(t *testing.T) {
	const worlds, restless, last = 600, 40, 600
	tooLarge, unknown := 0, 0
	for s := uint64(1); s <= worlds; s++ {
		l := newLife(t, s)
		for l.step = 0; l.step < last && (l.step < restless || len(l.todo) > 0); l.step++ {
			l.pass()
			for _, name := range sortedKeys(l.cluster.Queues) {
				q := l.cluster.Queues[name]
				switch l.rand.IntN(6) {
				case 0:
					q.PodLimit = Resources{"cpu": int64(l.rand.IntN(5))}
				case 1:
					q.Barred = []string{"", "nobody knows"}[l.rand.IntN(2)]
				}
				if l.step >= restless {
					q.PodLimit, q.Barred = nil, ""
				}
			}
			for _, d := range l.round(t) {
				l.checkLimits(d)
				switch d.Reason {
				case PodTooLarge:
					tooLarge++
				case ShapeUnknown:
					unknown++
				}
			}
			if l.step < restless/2 && l.rand.IntN(3) == 0 {
				l.arrive()
			}
		}
		if len(l.todo) > 0 {
			t.Errorf("%d groups have not ended after %d steps", len(l.todo), last)
		}
		if t.Failed() {
			t.Fatalf("seed %d", s)
		}
	}
	if tooLarge < worlds || unknown < worlds {
		t.Errorf("%d times too large, %d times not known: the clusters do not cover that", tooLarge, unknown)
	}
}

// checkLimits checks a decision for one group against the pod limits of its queue, and chooses when the bound pods end.
func (l *life) checkLimits(d *Decision) {
	q := l.cluster.Queues[d.Group.Queue]
	var given []Placement
	for _, gang := range d.Gangs {
		for _, at := range gang {
			l.ends[at.Pod] = l.step + 1 + l.rand.IntN(8)
			given = append(given, at)
		}
	}
	if d.Reservation != nil {
		given = append(given, d.Reservation.Placements...)
	}
	for _, at := range given {
		if q.Barred != "" || q.over(at.Pod) != "" {
			l.errorf("pod %s gets room with the limits %v, %q", at.Pod.Name, q.PodLimit, q.Barred)
		}
	}
	if (d.Reason == PodTooLarge || d.Reason == ShapeUnknown) && len(d.Evict) > 0 {
		l.errorf("%d pods are evicted for group %s, which must not start", len(d.Evict), d.Group.Name)
	}
}
