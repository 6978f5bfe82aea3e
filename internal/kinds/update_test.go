package kinds_test

import (
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

// TestLiveJobAcceptsUpdates verifies that a live job accepts the permitted changes, and that the changed job is valid.
// testdata/bad/update-*.yaml holds the changes that it rejects.
func TestLiveJobAcceptsUpdates(t *testing.T) {
	yes, no := true, false
	n := int32(9)
	for _, c := range []struct {
		name, job string
		change    func(*batch.GenericJobSpec)
	}{
		{"nothing at all", "everything", func(*batch.GenericJobSpec) {}},
		{"to pause", "everything", func(s *batch.GenericJobSpec) { s.RunMode.Pause.Enabled = &yes }},
		{"to resume by the older spelling", "paused", func(s *batch.GenericJobSpec) { s.RunMode.Pause.Enabled, s.RunMode.Pause.Enable = nil, &no }},
		{"to debug", "everything", func(s *batch.GenericJobSpec) { s.RunMode.Debug.Enabled = &yes }},
		{"to pause a job without run modes", "minimal", func(s *batch.GenericJobSpec) {
			s.RunMode = &batch.RunMode{Pause: &batch.PauseMode{Enabled: &yes}}
		}},
		{"to debug a job that can be paused only", "minimal", func(s *batch.GenericJobSpec) {
			s.RunMode = &batch.RunMode{Debug: &batch.DebugMode{Enabled: &yes, ReplicaSpecs: []batch.ReplicaDebugSet{}}}
		}},
		{"no run modes any more", "paused", func(s *batch.GenericJobSpec) { s.RunMode = nil }},
		{"the clean-up policy", "everything", func(s *batch.GenericJobSpec) { s.CleanUpPolicy = batch.CleanUpAll }},
		{"the time to live", "everything", func(s *batch.GenericJobSpec) { s.TTLSecondsAfterFinished = &n }},
		{"no time to live", "everything", func(s *batch.GenericJobSpec) { s.TTLSecondsAfterFinished = nil }},
		{"the priority", "everything", func(s *batch.GenericJobSpec) { s.Scheduler.T9kScheduler.Priority = &n }},
		{"the limit of restarts", "everything", func(s *batch.GenericJobSpec) { s.ReplicaSpecs[0].RestartPolicy.Limit = &n }},
		{"a limit where there was no restart policy", "minimal", func(s *batch.GenericJobSpec) {
			s.ReplicaSpecs[0].RestartPolicy = &batch.RestartPolicy{Limit: &n}
		}},
		{"a default written out", "minimal", func(s *batch.GenericJobSpec) {
			one := int32(1)
			s.ReplicaSpecs[0].Replicas = &one
			s.ReplicaSpecs[0].RestartPolicy = &batch.RestartPolicy{Policy: batch.RestartOnFailure}
			s.SuccessRules, s.Scheduler = []batch.FinishRule{}, &batch.SchedulePolicy{}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := kindtest.Decode(manifest(t, "good/"+c.job))
			if err != nil {
				t.Fatal(err)
			}
			old := objects[0].(*batch.GenericJob)
			updated := old.DeepCopy()
			c.change(&updated.Spec)
			if errs := kindtest.Named("GenericJob").ValidateUpdate(updated, old); len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
			if errs := kindtest.Named("GenericJob").Validate(updated, kinds.Limits{}); len(errs) > 0 {
				t.Errorf("the new job is refused: %v", errs)
			}
		})
	}
}
