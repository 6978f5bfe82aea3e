package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/test/kit/gate"
	"tensorstack.dev/batch/test/kit/jobs"
)

// TestAPIServerRefusesChangesOfImmutableFields verifies that the API server refuses a change of an immutable field of a
// live job, with a message that names the field and advises to create a new job.
func TestAPIServerRefusesChangesOfImmutableFields(t *testing.T) {
	s := newSpace(t)
	j := s.newJob("fixed", role("worker", 2, gate.Obey))
	j.Spec.RunMode = &batch.RunMode{Pause: &batch.PauseMode{ResumeSpecs: []batch.ResumeSpec{{Type: "worker", Args: []string{"x"}}}}}
	s.Create(j)
	for name, c := range map[string]struct {
		field  string
		change func(*batch.GenericJobSpec)
	}{
		"replicas": {"replicas", func(s *batch.GenericJobSpec) { *s.ReplicaSpecs[0].Replicas = 3 }},
		"template": {"template", func(s *batch.GenericJobSpec) { s.ReplicaSpecs[0].Template.Spec.Containers[0].Image = "other" }},
		"policy": {"restartPolicy", func(s *batch.GenericJobSpec) {
			s.ReplicaSpecs[0].RestartPolicy = &batch.RestartPolicy{Policy: batch.RestartAlways}
		}},
		"roles":         {"replicaSpecs", func(s *batch.GenericJobSpec) { s.ReplicaSpecs = append(s.ReplicaSpecs, role("more", 1, "exit 0")) }},
		"success rules": {"successRules", func(s *batch.GenericJobSpec) { s.SuccessRules = []batch.FinishRule{{"worker": {}}} }},
		"failure rules": {"failureRules", func(s *batch.GenericJobSpec) { s.FailureRules = []batch.FinishRule{{"worker": {}}} }},
		"service": {"service", func(s *batch.GenericJobSpec) {
			s.Service = &batch.ServiceOption{Ports: []corev1.ServicePort{{Port: 80}}}
		}},
		"resume specs": {"runMode", func(s *batch.GenericJobSpec) { s.RunMode.Pause.ResumeSpecs[0].Args = []string{"y"} }},
		"scheduler": {"scheduler", func(s *batch.GenericJobSpec) {
			s.Scheduler = &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "q"}}
		}},
	} {
		err := s.tryEdit("fixed", func(j *batch.GenericJob) { c.change(&j.Spec) })
		if err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), "create a new job") {
			t.Errorf("a change of %s: %v", name, err)
		}
	}
}

// TestRaisedRestartLimitAppliesToLiveJob verifies that a raised restart limit applies to a live job at once.
func TestRaisedRestartLimitAppliesToLiveJob(t *testing.T) {
	s := newSpace(t)
	s.Create(s.newJob("more", jobs.Restarting(role("worker", 1, gate.Obey), batch.RestartOnFailure, 0)))
	s.awaitStarts("more-worker-0", 1)
	s.edit("more", func(j *batch.GenericJob) { *j.Spec.ReplicaSpecs[0].RestartPolicy.Limit = 1 })
	s.awaitJob("more", "the change is observed", func(j *batch.GenericJob) bool { return j.Status.ObservedGeneration == j.Generation })
	s.order("more-worker-0", 1)
	s.awaitStarts("more-worker-0", 2)
	s.order("more-worker-0", 0)
	s.checkRestarts(s.awaitPhase("more", batch.JobSucceeded), map[string]int{"more-worker-0": 1})
}
