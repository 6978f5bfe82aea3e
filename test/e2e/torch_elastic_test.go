package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
)

// scale sets the size of an elastic job as `kubectl scale` does.
func (s *space) scale(j *batch.PyTorchTrainingJob, n int32) {
	s.Helper()
	if err := s.tryScale(j, n); err != nil {
		s.Fatal(err)
	}
}

func (s *space) tryScale(j *batch.PyTorchTrainingJob, n int32) error {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: j.Name, Namespace: s.Namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: n}}
	return s.Client.SubResource("scale").Update(s.Context(), j, client.WithSubResourceBody(scale))
}

// step is the record that examples/elastic writes for each step.
type step struct {
	number, world int
	loss          float64
}

func (s *space) steps() []step {
	s.Helper()
	var steps []step
	for line := range strings.Lines(s.written("log.txt")) {
		var st step
		if _, err := fmt.Sscanf(line, "step %d with %d replicas: loss %g\n", &st.number, &st.world, &st.loss); err != nil {
			continue // the last line may be incomplete
		}
		steps = append(steps, st)
	}
	return steps
}

// awaitSteps waits until world replicas have trained n consecutive steps together.
func (s *space) awaitSteps(world, n int) {
	s.Helper()
	began := time.Now()
	for deadline := began.Add(2 * await.Patience); ; time.Sleep(20 * time.Millisecond) {
		steps := s.steps()
		if k := len(steps); k >= n && !slices.ContainsFunc(steps[k-n:], func(st step) bool { return st.world != world }) {
			s.Logf("%d replicas train, %s after they were asked for, at step %d", world, time.Since(began).Round(100*time.Millisecond), steps[k-1].number)
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d replicas do not train; steps:\n%s\n%s", world, s.written("log.txt"), s.Dump())
		}
	}
}

// checkpointDistance is the number of steps between two checkpoints of examples/elastic.
const checkpointDistance = 10

// TestTorchElastic verifies that a job grows from 2 to 4 replicas and shrinks to 3 while it trains, that the remaining
// pods are not replaced, and that training continues from the last checkpoint each time.
func TestTorchElastic(t *testing.T) {
	s := newTorchSpace(t)
	j := s.training("elastic")
	s.Create(j)
	s.awaitSteps(2, 15)
	two := s.uidsOf(j)
	s.scale(j, 4)
	s.awaitSteps(4, 15)
	four := s.uidsOf(j)
	s.scale(j, 3)
	s.awaitSteps(3, 15)
	s.pods("elastic", "three", func(p []*corev1.Pod) bool { return podNames(p) == "elastic-node-0 elastic-node-1 elastic-node-2 " })
	three := s.uidsOf(j)
	j = awaitPhase(s, j, batch.JobSucceeded)

	for name, uid := range two {
		if four[name] != uid {
			t.Errorf("growing replaced pod %s", name)
		}
	}
	delete(four, "elastic-node-3")
	if !maps.Equal(three, four) || !maps.Equal(s.uidsOf(j), three) {
		t.Errorf("shrinking replaced pods: %v, before %v, at the end %v", three, four, s.uidsOf(j))
	}
	if j.Status.BackoffCount != 0 || j.Status.Replicas != 3 {
		t.Errorf("%d restarts and %d replicas, want none and 3", j.Status.BackoffCount, j.Status.Replicas)
	}
	steps := s.steps()
	for i := 1; i < len(steps); i++ {
		if back := steps[i-1].number - steps[i].number; back >= checkpointDistance || back < -1 {
			t.Errorf("step %d came after step %d", steps[i].number, steps[i-1].number)
		}
	}
	first, last := steps[0], steps[len(steps)-1]
	if last.number != 400 || last.loss > first.loss/2 {
		t.Errorf("the last step is %+v, the first %+v", last, first)
	}
}
