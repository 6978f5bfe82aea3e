package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// awaitSize waits until a job has exactly the replicas 0 to n-1 of each role, all of them are running, and the status
// shows that.
func (s *space) awaitSize(j *batch.PyTorchTrainingJob, sizes map[string]int) {
	s.Helper()
	total := s.awaitPods(j, sizes)
	now := awaitStatus(s, j, fmt.Sprintf("%d replicas run", total), func(now *batch.JobStatus) bool {
		return int(now.Replicas) == total && int(now.Aggregate.Running) == total
	})
	for i := range now.Status.Tasks {
		if task := &now.Status.Tasks[i]; len(task.Replicas) != sizes[task.Type] {
			s.Errorf("the status has %d replicas of %s, want %d", len(task.Replicas), task.Type, sizes[task.Type])
		}
	}
}

// awaitPods waits until a job has exactly the pods of ranks 0 to n-1 of each role and all of them are running, and
// returns their number.
func (s *space) awaitPods(j *batch.PyTorchTrainingJob, sizes map[string]int) int {
	s.Helper()
	want := map[string]bool{}
	for role, n := range sizes {
		for rank := range n {
			want[fmt.Sprintf("%s-%s-%d", j.Name, role, rank)] = true
		}
	}
	s.pods(j.Name, fmt.Sprintf("%v", sizes), func(pods []*corev1.Pod) bool {
		running := map[string]bool{}
		for _, p := range pods {
			running[p.Name] = p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
		}
		return maps.Equal(running, want)
	})
	return len(want)
}

// checkKept verifies that pods with the same name before and after are the same pods.
func (s *space) checkKept(before, after map[string]string) {
	s.Helper()
	for name, uid := range before {
		if now, ok := after[name]; ok && now != uid {
			s.Errorf("scaling replaced pod %s", name)
		}
	}
}

// TestScalingKeepsRemainingPods verifies that the size is divided among the roles by weight, that the highest ranks are
// removed, and that the remaining pods are not changed. It also verifies that sizes outside of the bounds are refused,
// and what the scale subresource reports.
func TestScalingKeepsRemainingPods(t *testing.T) {
	s := newSpace(t)
	j := s.newElastic("grow", 2, 9, 3, role("first", 1, gate.Idle), role("second", 1, gate.Idle))
	j.Spec.ReplicaSpecs[1].ScalingWeight = new(int32(2))
	s.Create(j)
	s.awaitSize(j, map[string]int{"first": 1, "second": 2})
	last := s.uidsOf(j)
	for _, c := range []struct {
		n             int32
		first, second int
	}{{9, 3, 6}, {4, 1, 3}, {2, 1, 1}, {6, 2, 4}} {
		s.scale(j, c.n)
		s.awaitSize(j, map[string]int{"first": c.first, "second": c.second})
		now := s.uidsOf(j)
		s.checkKept(last, now)
		last = now
		for name := range now { // before a later scaling removes it
			s.awaitStarts(name, 1)
		}
	}
	for _, n := range []int32{1, 10} {
		if err := s.tryScale(j, n); err == nil {
			t.Errorf("the size %d is outside of the bounds and was accepted", n)
		}
	}
	var scale autoscalingv1.Scale
	if err := s.Client.SubResource("scale").Get(t.Context(), j, &scale); err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 6 || scale.Status.Replicas != 6 || scale.Status.Selector == "" {
		t.Errorf("the scale subresource has %+v and %+v, want 6", scale.Spec, scale.Status)
	}
	s.checkStarts(map[string]int{"grow-first-0": 1, "grow-second-0": 1, "grow-first-1": 2, "grow-second-5": 1})
	if now := read(s, j); now.Status.BackoffCount != 0 {
		t.Errorf("%d restarts were charged", now.Status.BackoffCount)
	}
}

// TestJobWithASucceededReplicaDoesNotScale verifies that scaling does not change the pods of a job once a replica has
// succeeded.
func TestJobWithASucceededReplicaDoesNotScale(t *testing.T) {
	s := newSpace(t)
	j := s.newElastic("done", 2, 6, 4, role("node", 1, gate.Obey))
	s.Create(j)
	s.awaitSize(j, map[string]int{"node": 4})
	before := s.uidsOf(j)
	s.order("done-node-2", 0)
	awaitStatus(s, j, "the first success", func(now *batch.JobStatus) bool { return now.Aggregate.Succeeded == 1 })
	for _, n := range []int32{6, 2} {
		s.scale(j, n)
		awaitSeen(s, j)
		s.fence()
		if now := s.uidsOf(j); !maps.Equal(now, before) {
			t.Errorf("after the first success scaling to %d changed the pods to %v, before %v", n, now, before)
		}
	}
	for _, rank := range []int{1, 3, 0} {
		s.order(fmt.Sprintf("done-node-%d", rank), 0)
	}
	j = awaitPhase(s, j, batch.JobSucceeded)
	s.scale(j, 5)
	awaitSeen(s, j)
	s.fence()
	if now := s.uidsOf(j); !maps.Equal(now, before) {
		t.Errorf("after the end scaling changed the pods to %v, before %v", now, before)
	}
	for rank := range 4 {
		s.checkStarts(map[string]int{fmt.Sprintf("done-node-%d", rank): 1})
	}
}

// TestScalingKeepsCharges verifies that restarts count against backoffLimit even after a scaling has removed their
// replica.
func TestScalingKeepsCharges(t *testing.T) {
	s := newSpace(t)
	j := limited(s.newElastic("owes", 2, 3, 3, role("node", 1, gate.Obey)), 2)
	s.Create(j)
	s.orders("owes-node-2", 1)
	s.awaitStarts("owes-node-2", 2)
	s.awaitSize(j, map[string]int{"node": 3})
	s.scale(j, 2)
	s.awaitSize(j, map[string]int{"node": 2})
	if n := read(s, j).Status.BackoffCount; n != 1 {
		t.Errorf("backoffCount is %d after the replica was removed, want 1", n)
	}
	s.scale(j, 3)
	s.awaitSize(j, map[string]int{"node": 3})
	s.awaitStarts("owes-node-2", 3)
	s.order("owes-node-2", 1)
	s.awaitStarts("owes-node-2", 4)
	s.order("owes-node-2", 1)
	j = awaitPhase(s, j, batch.JobFailed)
	if j.Status.BackoffCount != 2 || jobs.Condition(j, batch.JobFailedCondition).Reason != batch.ReasonBackoffLimitExceeded {
		t.Errorf("backoffCount %d, conditions %+v", j.Status.BackoffCount, j.Status.Conditions)
	}
}

// scalings is the number of times that TestRandomScalingsEndAtTheLastSize changes the size of its job. internal/sim
// does the same in thousands of simulated clusters.
const scalings = 20

// TestRandomScalingsEndAtTheLastSize verifies that a job reaches the last size, whatever the sizes in between, and that
// the pods common to all sizes are not changed.
func TestRandomScalingsEndAtTheLastSize(t *testing.T) {
	s := newSpace(t)
	j := s.newElastic("flood", 2, 8, 4, role("node", 1, gate.Idle))
	s.Create(j)
	s.awaitSize(j, map[string]int{"node": 4})
	before := s.uidsOf(j)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	size := int32(0)
	for i := range scalings {
		size = 2 + rng.Int32N(7)
		s.scale(j, size)
		if i%7 == 6 { // sometimes the test waits for the size
			s.awaitSize(j, map[string]int{"node": int(size)})
		}
	}
	s.awaitSize(j, map[string]int{"node": int(size)})
	after := s.uidsOf(j)
	for rank := range 2 {
		name := fmt.Sprintf("flood-node-%d", rank)
		if after[name] != before[name] {
			t.Errorf("pod %s was replaced", name)
		}
		s.checkStarts(map[string]int{name: 1})
	}
	s.Await("the status of the last size", func() error {
		if now := read(s, j); now.Status.ObservedGeneration != now.Generation {
			return fmt.Errorf("generation %d of %d", now.Status.ObservedGeneration, now.Generation)
		}
		return nil
	})
	if now := read(s, j); now.Status.BackoffCount != 0 {
		t.Errorf("%d restarts", now.Status.BackoffCount)
	}
}
