package planner

import (
	"fmt"
	"testing"
	"time"
)

// TestEventsLeaveWaitingPodsAlone verifies that pods that wait for a plan are not in the scheduler's queue, which
// examines all its pods at each event of the cluster. Otherwise, binding n pods while n wait would take n²
// examinations.
func TestEventsLeaveWaitingPodsAlone(t *testing.T) {
	r := newRig(t, 1)
	r.queueSeen("q", 0)
	r.group("g", "q", 10, "500m")
	if pods, _ := r.sched.SchedulingQueue.PendingPods(); len(pods) != 0 {
		t.Errorf("%d of the 10 waiting pods are in the queue, which examines them at each event", len(pods))
	}
	r.plan()
	for n := range 10 {
		if r.nextReady() == nil {
			t.Fatalf("the queue returned %d of the 10 pods that have a node", n)
		}
	}
	if pods, _ := r.sched.SchedulingQueue.PendingPods(); len(pods) != 0 || len(r.sched.SchedulingQueue.InFlightPods()) != 10 {
		t.Errorf("after it returned all pods the queue still has %d", len(pods))
	}
}

// TestDeletedPodsAreNotReturned verifies that a pod that changed while it waited is handed out in its latest version,
// and that a planned pod that was deleted is not handed out.
func TestDeletedPodsAreNotReturned(t *testing.T) {
	r := newRig(t, 1)
	r.queueSeen("q", 0)
	r.podGroup("g", "q", 1)
	old := r.pod("g-0", "g", "1", "")
	changed := old.DeepCopy()
	changed.ResourceVersion = "2"
	r.sched.SchedulingQueue.Update(t.Context(), old, changed)
	r.plan()
	if len(r.ready) != 1 {
		t.Fatalf("%d pods have a node", len(r.ready))
	}
	info := r.nextReady()
	if info == nil || info.Pod.ResourceVersion != "2" {
		t.Fatalf("the queue returned %v, want the pod's last version", info)
	}
	r.podGroup("h", "q", 1)
	gone := r.pod("h-0", "h", "1", "")
	r.plan()
	r.sched.SchedulingQueue.Delete(gone)
	if info := r.nextReady(); info != nil {
		t.Errorf("the queue returned a deleted pod: %v", info.Pod.Name)
	}
}

// TestPauseBetweenFullRounds verifies that a new group is planned at once, and that it does not cause groups that did
// not fit to be planned again early. They are planned again after the pause, and another pause begins.
func TestPauseBetweenFullRounds(t *testing.T) {
	r := newRig(t, 10)
	r.queueSeen("q", 0)
	r.group("unfit", "q", 2, "9")
	r.plan()
	unfit := r.index.groups["default/unfit"]
	r.index.roomMade(false)
	r.nextFull = r.now().Add(time.Hour)
	pause := r.nextFull
	for i := range 3 {
		r.group(fmt.Sprint("fits", i), "q", 2, "1")
		r.group(fmt.Sprint("unfit", i), "q", 2, "9")
		r.plan()
		if len(r.ready) != 2*(i+1) {
			t.Fatalf("%d pods have a node after %d groups that fit", len(r.ready), i+1)
		}
	}
	if unfit.tried == r.index.freed || !r.nextFull.Equal(pause) {
		t.Error("groups that did not fit are tried again for each new group")
	}
	if !r.due {
		t.Error("groups that did not fit are not tried again")
	}
	r.nextFull = time.Time{}
	r.plan()
	if unfit.tried != r.index.freed || !r.nextFull.After(r.now()) {
		t.Error("groups that did not fit are not tried again in time, or there is no pause afterwards")
	}
}

// BenchmarkPreemption plans evictions for a gang of 64 pods on 1,000 nodes that are full of gangs of a lower queue.
func BenchmarkPreemption(b *testing.B) {
	const nodes = 1000
	r := newRig(b, nodes)
	r.queueSeen("low", 0)
	r.queueSeen("high", 10)
	for i := range nodes / 8 {
		name := fmt.Sprintf("low%d", i)
		r.podGroup(name, "low", 16)
		for k := range 16 {
			r.pod(fmt.Sprintf("%s-%d", name, k), name, "4", fmt.Sprintf("n%d", 8*i+k/2))
		}
	}
	r.group("high", "high", 64, "4")
	for b.Loop() {
		r.plan()
		if g := r.index.groups["default/high"]; g.Reservation == nil || len(g.Reservation.Blockers) != 64 {
			b.Fatalf("not planned with 64 victims: %+v", g.Reservation)
		}
		b.StopTimer()
		r.drop()
		b.StartTimer()
	}
}

// BenchmarkPlacing plans 128 pods in gangs on 500 and 5,000 nodes.
func BenchmarkPlacing(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		for _, size := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("nodes=%d/gang=%d", nodes, size), func(b *testing.B) {
				r := newRig(b, nodes)
				r.queueSeen("q", 0)
				for i := range podsPerRound / size {
					r.group(fmt.Sprintf("g%d", i), "q", size, "1")
				}
				for b.Loop() {
					r.plan()
					if len(r.ready) != podsPerRound {
						b.Fatalf("%d pods have a node", len(r.ready))
					}
					b.StopTimer()
					r.drop()
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkUnfit plans 1,000 groups of different sizes that do not fit, after some room has become free.
func BenchmarkUnfit(b *testing.B) {
	r := newRig(b, 500)
	r.queueSeen("q", 0)
	for i := range 1000 {
		r.group(fmt.Sprintf("g%d", i), "q", 4, fmt.Sprintf("%d", 9+i%20))
	}
	for b.Loop() {
		r.plan()
		b.StopTimer()
		if len(r.ready) != 0 {
			b.Fatal("something fits")
		}
		r.index.roomMade(false)
		r.drop()
		b.StartTimer()
	}
}

// BenchmarkComing plans one new gang while no groups, or 1,000 groups that do not fit, wait and room becomes free
// continuously.
func BenchmarkComing(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			r := newRig(b, 500)
			r.queueSeen("q", 0)
			for i := range waiting {
				r.group(fmt.Sprintf("g%d", i), "q", 4, fmt.Sprintf("%d", 9+i%20))
			}
			r.plan()
			r.group("comes", "q", 8, "1")
			for b.Loop() {
				r.plan()
				b.StopTimer()
				if len(r.ready) != 8 {
					b.Fatalf("%d pods have a node", len(r.ready))
				}
				r.index.roomMade(false)
				pause := r.nextFull
				r.drop()
				r.nextFull = pause
				b.StartTimer()
			}
		})
	}
}
