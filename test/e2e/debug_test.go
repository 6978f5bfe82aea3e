package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// setDebug sets the debug switch of a live job.
func (s *space) setDebug(name string, on bool) {
	s.Helper()
	s.edit(name, func(j *batch.GenericJob) {
		if j.Spec.RunMode == nil {
			j.Spec.RunMode = &batch.RunMode{}
		}
		if j.Spec.RunMode.Debug == nil {
			j.Spec.RunMode.Debug = &batch.DebugMode{}
		}
		j.Spec.RunMode.Debug.Enabled = &on
	})
}

// TestDebugRunReplacesCommands verifies that the containers of a debug run have the debug commands, their environment,
// and neither arguments nor probes, and that skipInitContainer decides whether init containers run.
func TestDebugRunReplacesCommands(t *testing.T) {
	s := newSpace(t)
	fails := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}, PeriodSeconds: 1, FailureThreshold: 1}
	bare, custom := role("bare", 1, gate.Obey), role("custom", 1, gate.Obey)
	for _, r := range []*batch.ReplicaSpec{&bare, &custom} {
		r.Template.Spec.InitContainers = []corev1.Container{container("initial", "echo initial >> /gate/$HOSTNAME.initial")}
		c := &r.Template.Spec.Containers[0]
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = fails, fails, fails
		c.Args = []string{"sh", "unused"}
		c.Env = []corev1.EnvVar{{Name: "WHO", Value: "$(type)"}}
	}
	j := s.newJob("look", bare, custom)
	j.Spec.RunMode = &batch.RunMode{Debug: &batch.DebugMode{Enabled: new(true), ReplicaSpecs: []batch.ReplicaDebugSet{
		{Type: "custom", SkipInitContainer: true, Command: []string{"sh", "-c", "echo $(rank) looks >> /gate/looks; exec sleep 1000000"}},
	}}}
	s.Create(j)
	j = s.awaitPhase("look", batch.JobRunning)
	if c := jobs.Condition(j, batch.JobRunningCondition); c.Reason != batch.ReasonDebugging {
		t.Errorf("condition Running: %+v", c)
	}
	for name, want := range map[string][]string{"look-bare-0": {"sleep", "inf"}, "look-custom-0": {"sh", "-c", "echo 0 looks >> /gate/looks; exec sleep 1000000"}} {
		p := s.podNow(name)
		c := p.Spec.Containers[0]
		if !slices.Equal(c.Command, want) || len(c.Args) != 0 || c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil {
			t.Errorf("pod %s runs %v %v with probes %v, %v, %v", name, c.Command, c.Args, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe)
		}
		if who := s.exec(s.Namespace, name, "main", "echo $WHO"); who != p.Labels[batch.LabelReplicaType] {
			t.Errorf("pod %s lacks its environment: %q", name, who)
		}
		if n := s.starts(name); n != 0 {
			t.Errorf("the real command of %s has started", name)
		}
	}
	s.awaitFile("looks", "0 looks\n")
	if s.written("look-bare-0.initial") == "" || s.written("look-custom-0.initial") != "" || s.written("looks") != "0 looks\n" {
		t.Errorf("init containers: bare %q, custom %q; debug command %q", s.written("look-bare-0.initial"), s.written("look-custom-0.initial"), s.written("looks"))
	}
}

// TestDebugRunHasNoResult verifies that the finish rules do not apply to a debug run, whatever the exit codes of its
// commands, and that the following real run starts without charges.
func TestDebugRunHasNoResult(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("try", role("worker", 2, gate.Obey))
	j.Spec.RunMode = &batch.RunMode{Debug: &batch.DebugMode{Enabled: new(true), ReplicaSpecs: []batch.ReplicaDebugSet{
		{Type: "worker", Command: []string{"sh", "-c", "exit $(rank)"}},
	}}}
	s.Create(j)
	s.awaitJob("try", "both replicas have ended", func(j *batch.GenericJob) bool {
		return j.Status.Aggregate.Succeeded == 1 && j.Status.Aggregate.Failed == 1
	})
	s.fence()
	if got := s.job("try"); jobs.Over(got) {
		t.Fatalf("the debug run ended the job: %+v", got.Status)
	}
	s.setDebug("try", false)
	s.order("try-worker-0", 0)
	s.order("try-worker-1", 0)
	s.checkRestarts(s.awaitPhase("try", batch.JobSucceeded), map[string]int{"try-worker-0": 0, "try-worker-1": 0})
}

// TestDebugSwitchReplacesPodsWithoutCharge verifies, for both directions on a live job, that the pods of the other mode
// are replaced and no restart is charged.
func TestDebugSwitchReplacesPodsWithoutCharge(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("flip", role("worker", 1, gate.Obey)))
	s.awaitStarts("flip-worker-0", 1)
	for i := range 2 {
		s.setDebug("flip", true)
		s.awaitJob("flip", "debugging", func(j *batch.GenericJob) bool {
			return jobs.Condition(j, batch.JobRunningCondition).Reason == batch.ReasonDebugging
		})
		s.setDebug("flip", false)
		s.awaitStarts("flip-worker-0", i+2)
	}
	s.order("flip-worker-0", 0)
	j := s.awaitPhase("flip", batch.JobSucceeded)
	if r := jobs.Replica(j, "flip-worker-0"); r.RestartCount != 0 || r.Attempt != 4 {
		t.Errorf("%d restarts at attempt %d, want 0 at 4", r.RestartCount, r.Attempt)
	}
	if n := occurrences(s.Events(), "flip", string(batch.EventReplicaDisrupted)); n != 0 {
		t.Errorf("%d events report disruptions", n)
	}
}

// TestOlderSpellingOfEnabledIsAccepted verifies that the operator reads `enable` if `enabled` is unset.
func TestOlderSpellingOfEnabledIsAccepted(t *testing.T) {
	t.Parallel()
	t.Run("debug", func(t *testing.T) {
		s := newSpace(t)
		j := s.newJob("old", role("worker", 1, gate.Obey))
		j.Spec.RunMode = &batch.RunMode{Debug: &batch.DebugMode{Enable: new(true)}}
		s.Create(j)
		s.awaitJob("old", "debugging", func(j *batch.GenericJob) bool {
			return jobs.Condition(j, batch.JobRunningCondition).Reason == batch.ReasonDebugging
		})
	})
	t.Run("pause", func(t *testing.T) {
		s := newSpace(t)
		j := s.newJob("old", role("worker", 1, gate.Obey))
		j.Spec.RunMode = &batch.RunMode{Pause: &batch.PauseMode{Enable: new(true)}}
		s.Create(j)
		s.awaitPhase("old", batch.JobPaused)
		s.edit("old", func(j *batch.GenericJob) { j.Spec.RunMode.Pause.Enable = new(false) })
		s.order("old-worker-0", 0)
		s.awaitPhase("old", batch.JobSucceeded)
	})
}
