package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// ran is gate.Obey that also records the first argument.
const ran = `echo "$0" >> /gate/$HOSTNAME.ran; ` + gate.Obey

// TestTrainingJobDebugsPausesAndResumes verifies that a training job that is created in debug mode runs, is paused, and
// resumes with the arguments of its resumeSpecs, that no restart is charged, and that status.startTime, from which the
// deadline counts, is the time of the resumption.
func TestTrainingJobDebugsPausesAndResumes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*space) client.Object
		// wiring is the environment variable with which the replicas find each other; command is the command of the
		// real run.
		wiring, command string
	}{
		"PyTorch": {func(s *space) client.Object {
			j := s.newPyTorch("job", role("worker", 2, ran))
			j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Args = []string{"fresh"}
			return j
		}, "MASTER_ADDR", "sh"},
		"torchrun": {func(s *space) client.Object {
			j := s.newElastic("job", 2, 3, 2, role("worker", 2, ran))
			c := &j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0]
			c.Args = append(c.Args, "fresh")
			return j
		}, "MASTER_ADDR", "torchrun"},
		"TensorFlow": {func(s *space) client.Object {
			j := s.newTensorFlow("job", role("worker", 2, ran))
			j.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Args = []string{"fresh"}
			return j
		}, "TF_CONFIG", "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t)
			j := c.make(s)
			resumed := []string{"resumed"}
			if name == "torchrun" { // torchrun gets the program as arguments
				resumed = []string{"sh", "-c", ran, "resumed"}
			}
			jobs.TrainingOf(j).RunMode = &batch.RunMode{
				Debug: &batch.DebugMode{Enabled: new(true)},
				Pause: &batch.PauseMode{ResumeSpecs: []batch.ResumeSpec{{Type: "worker", Args: resumed}}},
			}
			runPolicyOf(j).ActiveDeadlineSeconds = new(int32(3600))
			s.Create(j)
			awaitPhase(s, j, batch.JobRunning)
			s.checkPods(j, c.wiring, []string{"sleep", "inf"}, nil)

			change(s, j, func(j client.Object) { jobs.TrainingOf(j).RunMode.Debug.Enabled = new(false) })
			s.awaitRuns("fresh\n")
			s.checkPods(j, c.wiring, []string{c.command}, nil)
			change(s, j, func(j client.Object) { jobs.TrainingOf(j).RunMode.Pause.Enabled = new(true) })
			awaitPhase(s, j, batch.JobPaused)
			s.pods("job", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
			at := time.Now().Truncate(time.Second)
			change(s, j, func(j client.Object) { jobs.TrainingOf(j).RunMode.Pause.Enabled = new(false) })
			s.awaitRuns("fresh\nresumed\n")
			s.checkPods(j, c.wiring, []string{c.command}, resumed)
			j = awaitPhase(s, j, batch.JobRunning)
			if start := jobs.StatusOf(j).StartTime; start == nil || start.Time.Before(at) {
				t.Errorf("the start time is %v, want that of the resumption, after %v", start, at)
			}
			s.order("job-worker-0", 0)
			j = awaitPhase(s, j, batch.JobSucceeded)
			if n := jobs.StatusOf(j).BackoffCount; n != 0 {
				t.Errorf("%d restarts were charged", n)
			}
		})
	}
}

// awaitRuns waits until both workers have recorded their runs.
func (s *space) awaitRuns(want string) {
	s.Helper()
	for rank := range 2 {
		name := fmt.Sprintf("job-worker-%d", rank)
		s.Await(fmt.Sprintf("%s has run %q", name, want), func() error {
			if got := s.written(name + ".ran"); got != want {
				return fmt.Errorf("it has run %q", got)
			}
			return nil
		})
	}
}

// checkPods verifies the main containers of a job's pods: the beginning of their command, their arguments unless args
// is nil, and the presence of an environment variable.
func (s *space) checkPods(j client.Object, variable string, command, args []string) {
	s.Helper()
	pods := s.pods(j.GetName(), "two", func(p []*corev1.Pod) bool { return len(p) == 2 })
	for _, p := range pods {
		c := &p.Spec.Containers[0]
		if len(c.Command) < len(command) || !slices.Equal(c.Command[:len(command)], command) || args != nil && !slices.Equal(c.Args, args) {
			s.Errorf("pod %s runs %q with %q, want %q with %q", p.Name, c.Command, c.Args, command, args)
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable }) {
			s.Errorf("pod %s has no variable %s", p.Name, variable)
		}
	}
}
