package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/await"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestTorchDDP verifies that the variables that the job sets suffice for torch.distributed, so that four replicas train
// to the weights of a single process.
func TestTorchDDP(t *testing.T) {
	s := newTorchSpace(t)
	j := s.training("ddp")
	s.Create(j)
	j = awaitPhase(s, j, batch.JobSucceeded)
	s.checkWeights("ddp-worker-0")
	for rank := range 4 {
		s.awaitLog(fmt.Sprintf("ddp-worker-%d", rank), "pytorch", fmt.Sprintf("rank %d of 4, step 100: ", rank))
	}
	if j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts", j.Status.BackoffCount)
	}
}

// TestTorchReachesTheWeightsDespiteKills verifies that the weights are right after each rank was killed in turn during
// the training. The other ranks lose their peer and fail too, so that all replicas restart. The test compares the
// status with the pods that existed, and verifies that each incident is charged once.
func TestTorchReachesTheWeightsDespiteKills(t *testing.T) {
	s := newTorchSpace(t)
	j := s.training("ddp")
	s.Create(j)
	old := map[string]string{}
	for rank := range 4 {
		for other := range 4 {
			name := fmt.Sprintf("ddp-worker-%d", other)
			p := s.pod(name, "a new one", func(p *corev1.Pod) bool { return string(p.UID) != old[name] && p.Status.Phase == corev1.PodRunning })
			old[name] = string(p.UID)
		}
		for other := range 4 {
			s.awaitLog(fmt.Sprintf("ddp-worker-%d", other), "pytorch", "step 5: ")
		}
		old = s.uidsOf(j)
		s.kill(s.mainProcess(fmt.Sprintf("ddp-worker-%d", rank)))
	}
	j = awaitPhase(s, j, batch.JobSucceeded)
	s.checkWeights("ddp-worker-0")

	total := 0
	for rank := range 4 {
		name := fmt.Sprintf("ddp-worker-%d", rank)
		codes := s.exitCodesOf(name)
		t.Logf("%s ended with %v", name, codes)
		if !slices.Contains(codes, 137) || len(codes) < 5 {
			t.Errorf("%s was killed once, and all replicas restarted four times", name)
		}
		total += int(jobs.Replica(j, name).RestartCount)
	}
	if n := int(j.Status.BackoffCount); n != total || n < 4 || j.Status.Restarts != j.Status.BackoffCount {
		t.Errorf("%d incidents, %d charged, %d of them to replicas; want one for each kill", j.Status.Restarts, n, total)
	}
}

// exitCodesOf returns the exit codes of the pods of a replica, oldest first.
func (s *space) exitCodesOf(replica string) []int32 {
	s.Helper()
	var codes []int32
	for _, p := range s.history.Attempts(replica) {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				codes = append(codes, c.State.Terminated.ExitCode)
			}
		}
	}
	return codes
}

// TestTorchRun verifies torchrun on two nodes with two processes each: torchrun restarts a killed process; the job
// restarts a killed torchrun and no other replica.
func TestTorchRun(t *testing.T) {
	s := newTorchSpace(t)
	j := s.training("torchrun")
	s.Create(j)
	s.awaitTraining(j, 1)
	uids := s.uidsOf(j)

	agent := s.mainProcess("torchrun-node-1")
	worker := slices.IndexFunc(s.processes("torchrun-node-1"), func(p process) bool { return p.parent == agent.pid })
	if worker < 0 {
		t.Fatalf("torchrun has no processes: %v", s.processes("torchrun-node-1"))
	}
	s.kill(s.processes("torchrun-node-1")[worker])
	s.awaitTraining(j, 2)
	if now := s.uidsOf(j); now["torchrun-node-0"] != uids["torchrun-node-0"] || now["torchrun-node-1"] != uids["torchrun-node-1"] {
		t.Errorf("pods were replaced: %v, before %v", now, uids)
	}

	s.kill(agent)
	j = awaitPhase(s, j, batch.JobSucceeded)
	s.checkTorchrunEnd(j, uids)
}

func (s *space) checkTorchrunEnd(j *batch.PyTorchTrainingJob, uids map[string]string) {
	s.Helper()
	if now := s.uidsOf(j); now["torchrun-node-0"] != uids["torchrun-node-0"] || now["torchrun-node-1"] == uids["torchrun-node-1"] {
		s.Errorf("the pods are %v, before %v; only the second was to be replaced", now, uids)
	}
	first, second := jobs.Replica(j, "torchrun-node-0").RestartCount, jobs.Replica(j, "torchrun-node-1").RestartCount
	if first != 0 || second != 1 || j.Status.BackoffCount != 1 {
		s.Errorf("%d and %d restarts, %d in all, want 0 and 1", first, second, j.Status.BackoffCount)
	}
	// Rank 0 may be on either node.
	pod := "torchrun-node-0"
	if !strings.Contains(s.log(pod, "pytorch"), "weights") {
		pod = "torchrun-node-1"
	}
	s.checkWeights(pod)
}

// awaitTraining waits until all four processes of examples/torchrun have reached step 5 for the n-th time.
func (s *space) awaitTraining(j *batch.PyTorchTrainingJob, n int) {
	s.Helper()
	var text string
	for deadline := time.Now().Add(await.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text = ""
		for node := range 2 {
			data, err := s.Core.CoreV1().Pods(s.Namespace).GetLogs(fmt.Sprintf("%s-node-%d", j.Name, node), &corev1.PodLogOptions{Container: "pytorch"}).DoRaw(s.Context())
			if err == nil {
				text += string(data)
			}
		}
		there := true
		for rank := range 4 {
			there = there && strings.Count(text, fmt.Sprintf("rank %d of 4, step 5: ", rank)) >= n
		}
		if there {
			return
		}
	}
	s.Fatalf("the processes have not reached step 5 %d times\n%s\n%s", n, text, s.Dump())
}

// TestTorchReachesTheWeightsDespiteAPause verifies that a job that is paused while it trains resumes from its
// checkpoint, with the arguments of resumeSpecs, and reaches the weights of a training without a pause.
func TestTorchReachesTheWeightsDespiteAPause(t *testing.T) {
	s := newTorchSpace(t)
	j := s.training("resume")
	s.Create(j)
	s.awaitLog("resume-worker-0", "pytorch", "step 23: ")
	change(s, j, func(j *batch.PyTorchTrainingJob) { j.Spec.RunMode.Pause.Enabled = new(true) })
	awaitPhase(s, j, batch.JobPaused)
	s.pods("resume", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	change(s, j, func(j *batch.PyTorchTrainingJob) { j.Spec.RunMode.Pause.Enabled = new(false) })
	j = awaitPhase(s, j, batch.JobSucceeded)

	log := s.log("resume-worker-0", "pytorch")
	var done int
	if _, err := fmt.Sscanf(log, "goes on after step %d", &done); err != nil || done < 20 || done >= 100 || done%10 != 0 {
		t.Errorf("went on after step %d (%v), want a checkpoint of step 20 or later:\n%s", done, err, log)
	}
	if !strings.Contains(log, fmt.Sprintf("step %d: ", done+1)) || strings.Contains(log, fmt.Sprintf("step %d: ", done)) {
		t.Errorf("step %d was not followed by step %d:\n%s", done, done+1, log)
	}
	s.checkWeights("resume-worker-0")
	if j.Status.BackoffCount != 0 {
		t.Errorf("%d restarts", j.Status.BackoffCount)
	}
}
