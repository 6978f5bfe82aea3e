package sim

import (
	"slices"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// checkSize checks the size in a status against the spec. An elastic job may keep its earlier size once a replica has
// succeeded or the job has finished.
func (w *world) checkSize(s *batch.JobStatus, sum int) {
	want := w.job.Replicas()
	keeps := w.job.Elastic != nil && (finished(w.status) || w.anySuccess())
	asked := sum == want || keeps && sum == int(w.status.Replicas)
	if !asked || sum != int(s.Replicas) {
		w.fail("aggregate %+v adds up to %d, want %d; replicas %d", s.Aggregate, sum, want, s.Replicas)
	}
}

func (w *world) anySuccess() bool {
	for _, pods := range w.past {
		if slices.ContainsFunc(pods, func(t truth) bool { return t.selfEnded && t.success }) {
			return true
		}
	}
	return false
}

// checkRule checks that, if a job with success rules is Completed, all replicas of one of these rules have succeeded.
// The success rule of a training job names its master.
func (w *world) checkRule(s *batch.JobStatus) {
	if len(w.job.Success) == 0 || !isTrue(s, batch.JobCompleted) {
		return
	}
	if !slices.ContainsFunc(w.job.Success, func(rule engine.Rule) bool {
		return !slices.ContainsFunc(rule.Members, func(m engine.Member) bool {
			return !w.endedAs(w.job.PodName(w.job.Roles[m.Role].Type, m.Rank), true)
		})
	}) {
		w.fail("Completed, but no success rule holds")
	}
}

func reasonOf(s *batch.JobStatus, t batch.JobConditionType) batch.Reason {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c.Reason
		}
	}
	return ""
}
