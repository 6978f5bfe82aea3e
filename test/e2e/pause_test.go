package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// setPause sets the pause switch of a live job.
func (s *space) setPause(name string, on bool) {
	s.Helper()
	s.edit(name, func(j *batch.GenericJob) {
		if j.Spec.RunMode == nil {
			j.Spec.RunMode = &batch.RunMode{}
		}
		if j.Spec.RunMode.Pause == nil {
			j.Spec.RunMode.Pause = &batch.PauseMode{}
		}
		j.Spec.RunMode.Pause.Enabled = &on
	})
}

// TestPauseKeepsCountsAndResults verifies that a pause lets the processes terminate gracefully and keeps the restart
// counts and the results. When the job is resumed, its unfinished replicas start again, and later restarts add to the
// earlier counts.
func TestPauseKeepsCountsAndResults(t *testing.T) {
	s := newSpace(t)
	trained := role("worker", 1, `trap 'read x < /gate/saved; echo saved >> /gate/order; exit 0' TERM
		echo started >> /gate/$HOSTNAME.starts; read code < /gate/$HOSTNAME & wait $!; exit 0`)
	trained.Template.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	s.Must(s.AddPipe("saved"))
	s.Create(s.newJob("nap", trained, jobs.Restarting(role("flaky", 1, gate.Obey), batch.RestartOnFailure, 2), role("quick", 1, gate.Obey)))
	s.orders("nap-flaky-0", 1)
	s.awaitStarts("nap-flaky-0", 2)
	s.awaitStarts("nap-worker-0", 1)
	s.order("nap-quick-0", 0)
	s.awaitJob("nap", "one replica has succeeded", func(j *batch.GenericJob) bool { return j.Status.Aggregate.Succeeded == 1 })

	s.setPause("nap", true)
	j := s.awaitPhase("nap", batch.JobPaused)
	if !jobs.IsTrue(j, batch.JobPausedCondition) || jobs.IsTrue(j, batch.JobRunningCondition) {
		t.Errorf("conditions: %+v", j.Status.Conditions)
	}
	s.pods("nap", "only the slow one", func(p []*corev1.Pod) bool { return podNames(p) == "nap-worker-0 " })
	s.order("saved", 0)
	s.pods("nap", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	if s.written("order") != "saved\n" {
		t.Errorf("the process could not save: %q", s.written("order"))
	}
	s.fence()
	j = s.job("nap")
	if r := jobs.Replica(j, "nap-flaky-0"); r.RestartCount != 1 || j.Status.BackoffCount != 1 || j.Status.Phase != batch.JobPaused {
		t.Errorf("while paused: phase %s, %d restarts, %+v", j.Status.Phase, j.Status.BackoffCount, r)
	}

	s.setPause("nap", false)
	s.awaitStarts("nap-worker-0", 2)
	s.awaitStarts("nap-flaky-0", 3)
	s.awaitPhase("nap", batch.JobRunning)
	if got, want := s.history.Phases("nap"), []batch.JobPhase{batch.JobPaused, batch.JobResuming, batch.JobRunning}; !endsWith(got, want) {
		t.Errorf("phases %v, want %v at the end", got, want)
	}
	// One restart of the limit of 2 remains.
	s.order("nap-flaky-0", 1)
	s.awaitStarts("nap-flaky-0", 4)
	s.order("nap-flaky-0", 0)
	s.order("nap-worker-0", 0)
	j = s.awaitPhase("nap", batch.JobSucceeded)
	if r := jobs.Replica(j, "nap-flaky-0"); r.RestartCount != 2 || jobs.Replica(j, "nap-worker-0").RestartCount != 0 {
		t.Errorf("after the pause: %+v, %+v", r, jobs.Replica(j, "nap-worker-0"))
	}
	s.checkStarts(map[string]int{"nap-quick-0": 1})
	s.awaitEvent("nap", batch.EventJobPaused, "")
	s.awaitEvent("nap", batch.EventJobResumed, "")
}

func endsWith[T comparable](all, end []T) bool {
	return len(all) >= len(end) && slices.Equal(all[len(all)-len(end):], end)
}

// TestResumeSpecsReplaceCommands verifies the commands and init containers of replicas after a pause, and their
// commands after a restart that follows it.
func TestResumeSpecsReplaceCommands(t *testing.T) {
	s := newSpace(t)
	script := `echo "$0 $1" >> /gate/$HOSTNAME.ran; ` + gate.Obey
	args := role("args", 1, script)
	args.Template.Spec.Containers[0].Args = []string{"template", "fresh"}
	args.Template.Spec.InitContainers = []corev1.Container{container("initial", "echo initial >> /gate/$HOSTNAME.ran")}
	command := *args.DeepCopy()
	command.Type = "command"
	command.Template.Spec.Containers = append(command.Template.Spec.Containers, container("side", "echo side >> /gate/side; exec sleep 1000000"))
	plain := *args.DeepCopy()
	plain.Type = "plain"
	j := s.newJob("again", jobs.Restarting(args, batch.RestartOnFailure, 1), command, plain)
	j.Spec.SuccessRules = []batch.FinishRule{{"args": {}}}
	j.Spec.CleanUpPolicy = batch.CleanUpAll
	j.Spec.RunMode = &batch.RunMode{Pause: &batch.PauseMode{ResumeSpecs: []batch.ResumeSpec{
		{Type: "args", SkipInitContainer: true, Args: []string{"template", "resumed-$(type)"}},
		{Type: "command", Command: []string{"sh", "-c", script, "resumed"}},
	}}}
	s.Create(j)
	for i, name := range []string{"again-args-0", "again-command-0", "again-plain-0"} {
		s.awaitStarts(name, 1)
		if got := s.written(name + ".ran"); got != "initial\ntemplate fresh\n" {
			t.Errorf("replica %d first ran %q", i, got)
		}
	}
	s.awaitFile("side", "side\n")
	s.setPause("again", true)
	s.pods("again", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.setPause("again", false)
	for name, want := range map[string]string{
		"again-args-0":    "template resumed-args\n",
		"again-command-0": "initial\nresumed template\n",
		"again-plain-0":   "initial\ntemplate fresh\n",
	} {
		s.awaitStarts(name, 2)
		if got := s.written(name + ".ran"); got != "initial\ntemplate fresh\n"+want {
			t.Errorf("%s ran %q, want %q after the pause", name, got, want)
		}
	}
	s.awaitFile("side", "side\nside\n")
	s.order("again-args-0", 1)
	s.awaitStarts("again-args-0", 3)
	if got := s.written("again-args-0.ran"); !endsWith([]byte(got), []byte("template resumed-args\ntemplate resumed-args\n")) {
		t.Errorf("a restart after the resumption ran %q", got)
	}
	s.order("again-args-0", 0)
	s.awaitPhase("again", batch.JobSucceeded)
	if got := s.written("side"); got != "side\nside\n" {
		t.Errorf("the container beside the main one ran %q", got)
	}
}

// TestJobCreatedPausedCreatesNothing verifies that a job that is created paused creates no objects until it is resumed,
// and that pause has precedence over debug.
func TestJobCreatedPausedCreatesNothing(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("still", role("worker", 1, gate.Obey))
	j.Spec.RunMode = &batch.RunMode{Pause: &batch.PauseMode{Enabled: new(true)}, Debug: &batch.DebugMode{Enabled: new(true)}}
	j.Spec.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Port: 80}}}
	s.Create(j)
	j = s.awaitPhase("still", batch.JobPaused)
	if j.Status.StartTime != nil {
		t.Errorf("start time %v", j.Status.StartTime)
	}
	s.fence()
	s.checkNothingCreated("still")
	s.setPause("still", false)
	s.awaitJob("still", "debugging", func(j *batch.GenericJob) bool {
		return jobs.Condition(j, batch.JobRunningCondition).Reason == batch.ReasonDebugging
	})
	s.setPause("still", true)
	s.pods("still", "none", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.setDebug("still", false)
	s.setPause("still", false)
	s.order("still-worker-0", 0)
	j = s.awaitPhase("still", batch.JobSucceeded)
	if j.Status.StartTime == nil || j.Status.BackoffCount != 0 {
		t.Errorf("start time %v, %d restarts", j.Status.StartTime, j.Status.BackoffCount)
	}
}
