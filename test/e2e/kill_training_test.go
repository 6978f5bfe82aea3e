package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
)

// trainingRound holds the training jobs of one round of TestJobsEndTheSameWhenTheOperatorIsKilled.
type trainingRound struct {
	shared  *batch.PyTorchTrainingJob
	codes   *batch.TensorFlowTrainingJob
	elastic *batch.PyTorchTrainingJob
	late    *batch.TensorFlowTrainingJob
}

// startTraining creates the training jobs of a round.
func (s *space) startTraining(round int) trainingRound {
	s.Helper()
	name := func(sort string) string { return fmt.Sprintf("%s-%d", sort, round) }
	var r trainingRound
	// The limit counts the restarts of all replicas together and is just large enough.
	r.shared = limited(s.newPyTorch(name("shared"), role("master", 1, gate.Obey), role("worker", 2, nth+`[ $n -gt 2 ]`)), 4)
	// One replica is restarted, one fails, and one keeps running.
	r.codes = s.newTensorFlow(name("codes"), role("chief", 1, gate.Obey),
		under(batch.TrainingRestartExitCode, role("worker", 1, nth+`[ $n -gt 1 ] || exit 137`)),
		under(batch.TrainingRestartExitCode, role("evaluator", 1, nth+"exit 1")), role("ps", 1, gate.Idle))
	runPolicyOf(r.codes).CleanUpPolicy = batch.CleanUpAll
	r.elastic = s.newElastic(name("elastic"), 1, 4, 2, role("node", 1, gate.Obey))
	r.late = s.newTensorFlow(name("late"), role("worker", 2, gate.Idle))
	runPolicyOf(r.late).ActiveDeadlineSeconds = new(int32(2))
	s.Create(r.shared)
	s.Create(r.codes)
	s.Create(r.elastic)
	s.Create(r.late)
	return r
}

// finish scales the elastic job of a round, makes all training jobs of the round end, and verifies their phases and
// that the scaling did not replace the remaining replica.
func (r trainingRound) finish(s *space) {
	s.Helper()
	// A scaling while the operator is down, or during another scaling, must not affect the remaining replicas.
	s.awaitPods(r.elastic, map[string]int{"node": 2})
	kept := s.uidsOf(r.elastic)
	for _, n := range []int32{4, 1, 3} {
		s.scale(r.elastic, n)
	}
	s.awaitPods(r.elastic, map[string]int{"node": 3})
	first := r.elastic.Name + "-node-0"
	if now := s.uidsOf(r.elastic); now[first] != kept[first] {
		s.Errorf("pod %s was replaced", first)
	}
	s.checkStarts(map[string]int{first: 1})

	// The test checks the pods, because an operator that is always killed within a second does not write a status for
	// the ends of pods alone.
	s.awaitEnds(r.shared.Name, 2, 0)
	s.awaitEnds(r.codes.Name, 1, 1)
	s.order(r.shared.Name+"-master-0", 0)
	s.order(r.codes.Name+"-chief-0", 0)
	s.order(first, 0)
	awaitPhase(s, r.shared, batch.JobSucceeded)
	awaitPhase(s, r.codes, batch.JobSucceeded)
	awaitPhase(s, r.elastic, batch.JobSucceeded)
	awaitPhase(s, r.late, batch.JobFailed)
	for _, name := range []string{r.codes.Name, r.late.Name} {
		s.pods(name, "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	}
}

// awaitEnds waits until exactly the given numbers of a job's existing pods have succeeded and failed.
func (s *space) awaitEnds(job string, succeeded, failed int) {
	s.Helper()
	s.pods(job, fmt.Sprintf("%d succeeded, %d failed", succeeded, failed), func(pods []*corev1.Pod) bool {
		count := map[corev1.PodPhase]int{}
		for _, p := range pods {
			count[p.Status.Phase]++
		}
		return count[corev1.PodSucceeded] == succeeded && count[corev1.PodFailed] == failed
	})
}
