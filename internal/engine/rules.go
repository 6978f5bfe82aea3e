package engine

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// verdict is the end of a job; its zero value means that the job has not ended.
type verdict struct {
	phase   batch.JobPhase // JobSucceeded, JobFailed or empty
	reason  batch.Reason
	message string
}

func (v verdict) over() bool { return v.phase != "" }

// sameMoment is the largest difference between the times of two ends that count as simultaneous. The times have a
// resolution of one second and come from the clocks of different nodes. A success also waits this long for unseen
// failures, or longer if it was itself observed late.
const sameMoment = time.Second

// maxLateWait is the longest wait of a success that was observed late.
const maxLateWait = 5 * time.Second

// maxInvalidReplicas is the largest number of replicas of an invalid job that continues because it has started. It
// bounds memory.
const maxInvalidReplicas = 100_000

// rejected reports whether a job cannot be carried out, given its last status.
func (j *Job) rejected(old *batch.JobStatus) bool {
	return j.Invalid != "" && (old.StartTime == nil || len(j.Roles) == 0 || j.Replicas() > maxInvalidReplicas)
}

// judge returns whether and how the job ends in this pass. It applies the finish rules, except in debug mode, and then
// the time limits. The verdict is empty if the job had finished already.
func (p *pass) judge() verdict {
	if p.finished {
		return verdict{}
	}
	if p.rejected {
		return verdict{batch.JobFailed, batch.ReasonInvalidSpec, p.Invalid}
	}
	if p.mode != batch.RunDebug {
		if v := p.judgeRules(); v.over() || p.plan.Contested {
			return v
		}
	}
	v := p.judgeDuration()
	if !v.over() {
		v = p.judgeDeadline()
	}
	if v.over() && !p.seen.Live { // a pod may have ended earlier, and would then decide
		p.plan.Refresh = true
	}
	return v
}

// judgeRules returns the verdict of the finish rules. If both a success rule and a failure rule hold, success wins only
// if it held more than sameMoment earlier, whichever was observed first. Without a success, a used-up limit on restarts
// decides before the failure rules. If no rule holds, the job fails if none can hold any more, or if a collective job
// has lost a replica for good.
func (p *pass) judgeRules() verdict {
	lost, lostAt := p.judgeFailure()
	won, wonAt := p.judgeSuccess()
	if !won.over() {
		if v := p.judgeLimit(); v.over() {
			p.plan.Refresh = !p.seen.Live // the master may have succeeded
			return v
		}
	}
	switch {
	case lost.over() && won.over() && !wonAt.IsZero() && lostAt.Sub(wonAt) > sameMoment:
		return won
	case lost.over():
		if !p.seen.Live && p.couldHold(p.Success, failed) {
			p.plan.Refresh = true // an earlier success may not have been seen
		}
		return lost
	case won.over() && p.couldHold(p.Failure, succeeded):
		return p.awaitFailures(won, wonAt)
	case won.over():
		return won
	}
	if v := p.judgeUnsatisfiable(); v.over() {
		return v
	}
	return p.judgeCollective()
}

// couldHold reports whether one of the rules may already hold. A rule may hold unless one of its members is known to
// have the contrary result, because the ends of the other members may not have been observed yet.
func (p *pass) couldHold(rules []Rule, contrary ending) bool {
	return slices.ContainsFunc(rules, func(rule Rule) bool {
		return !slices.ContainsFunc(rule.Members, func(m Member) bool { return p.roles[m.Role][m.Rank].result == contrary })
	})
}

// awaitFailures delays a success until all failures of the same time should have been observed. A kubelet checks its
// containers once a second, and times have a resolution of one second, so a success is observed up to two seconds
// after wonAt. If it is observed later than that, the kubelet or the API server is slow, and a failure may be just as
// late.
func (p *pass) awaitFailures(won verdict, wonAt time.Time) verdict {
	p.plan.Contested = true
	since := p.seen.ContestedSince
	if since.IsZero() {
		since = p.seen.Now
	}
	wait := sameMoment
	if !wonAt.IsZero() {
		wait = min(max(wait, since.Sub(wonAt)-sameMoment), maxLateWait)
	}
	if at := since.Add(wait); p.seen.Now.Before(at) {
		p.wakeAt(at)
		return verdict{}
	}
	if !p.seen.Live {
		p.plan.Refresh = true
	}
	return won
}

// judgeDuration ends a job if its queue has removed a pod because of the pod's age. A replacement would only reach the
// same age.
func (p *pass) judgeDuration() verdict {
	for i := range p.replicas {
		if r := &p.replicas[i]; r.pod != nil && tooOld(r.pod) && r.result == notEnded {
			return verdict{batch.JobFailed, batch.ReasonQueueMaxDuration,
				fmt.Sprintf("Pod %s reached its maximum age: %s.", r.name, disruption(r.pod).Message)}
		}
	}
	return verdict{}
}

// tooOld reports whether the pod's queue ends the pod because of its age.
func tooOld(pod *corev1.Pod) bool {
	return disruptionReason(pod) == string(batch.ReasonQueueMaxDuration)
}

// judgeDeadline ends a job that has been active for longer than its deadline, in any mode but pause.
func (p *pass) judgeDeadline() verdict {
	start := p.startTime()
	if p.Deadline == nil || p.mode == batch.RunPause || start == nil {
		return verdict{}
	}
	if at := start.Add(*p.Deadline); p.seen.Now.Before(at) {
		p.wakeAt(at)
		return verdict{}
	}
	return verdict{batch.JobFailed, batch.ReasonDeadlineExceeded,
		fmt.Sprintf("The job was active for longer than its deadline, which is %s.", *p.Deadline)}
}

// pastDeadline reports whether the deadline ended the job.
func (p *pass) pastDeadline() bool {
	if p.verdict.over() {
		return p.verdict.reason == batch.ReasonDeadlineExceeded
	}
	c := condition(p.old, batch.JobFailedCondition)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == batch.ReasonDeadlineExceeded
}

// judgeLimit ends a job if its policy would restart a failed replica but the limit is used up, because the other
// replicas may wait for that replica forever. Success rules are applied first, because replicas often fail after the
// master has succeeded.
func (p *pass) judgeLimit() verdict {
	r := p.inc.exceeded
	if r == nil {
		return verdict{}
	}
	return verdict{batch.JobFailed, batch.ReasonBackoffLimitExceeded, fmt.Sprintf("Replica %s has failed%s, and backoffLimit allows %s.",
		r.name, r.endText(), counted(*p.RestartLimit, "retry", "retries"))}
}

// masterGrace is how long the master of a collective job may run after another replica has failed for good.
const masterGrace = time.Minute

// judgeCollective ends a collective job that has lost a replica for good. It waits for masterGrace first, because the
// end of the master may give a better reason.
func (p *pass) judgeCollective() verdict {
	if !p.Collective || p.mode == batch.RunPause {
		return verdict{}
	}
	i := slices.IndexFunc(p.replicas, func(r replica) bool { return r.final() && r.result == failed })
	if i < 0 {
		return verdict{}
	}
	since := p.seen.Now
	if c := condition(p.old, batch.JobReplicaFailure); c != nil && c.Status == metav1.ConditionTrue {
		since = c.LastTransitionTime.Time
	}
	if at := since.Add(masterGrace); p.seen.Now.Before(at) {
		p.wakeAt(at)
		return verdict{}
	}
	r := &p.replicas[i]
	return verdict{batch.JobFailed, batch.ReasonReplicaFailed, fmt.Sprintf("Replica %s has failed%s for good, the others cannot continue without it, "+
		"and the master has not ended within %s.", r.name, r.endText(), masterGrace)}
}

// judgeFailure returns the verdict of the failure rules, and when the first of them began to hold. Without any finish
// rules, a replica that has failed for good fails the job. The time is zero if it is not known.
func (p *pass) judgeFailure() (verdict, time.Time) {
	if rule, at := p.first(p.Failure, failed); rule != nil {
		return verdict{batch.JobFailed, batch.ReasonFailureRule,
			fmt.Sprintf("All replicas of failure rule %s have failed.", rule.Text)}, at
	}
	if len(p.Failure) > 0 || len(p.Success) > 0 {
		return verdict{}, time.Time{}
	}
	for i := range p.replicas {
		if r := &p.replicas[i]; r.final() && r.result == failed {
			return verdict{batch.JobFailed, batch.ReasonFailureRule,
				fmt.Sprintf("Replica %s has failed%s, and without finish rules one failed replica fails the job.", r.name, r.endText())}, p.failedAt(r)
		}
	}
	return verdict{}, time.Time{}
}

// judgeSuccess returns the verdict of the success rules, and when the first of them began to hold. Without success
// rules, every replica must have succeeded, and the time is zero.
func (p *pass) judgeSuccess() (verdict, time.Time) {
	if rule, at := p.first(p.Success, succeeded); rule != nil {
		return verdict{batch.JobSucceeded, batch.ReasonSuccessRule,
			fmt.Sprintf("All replicas of success rule %s have succeeded.", rule.Text)}, at
	}
	if len(p.Success) > 0 {
		return verdict{}, time.Time{}
	}
	for i := range p.replicas {
		if r := &p.replicas[i]; !r.final() || r.result != succeeded {
			return verdict{}, time.Time{}
		}
	}
	return verdict{batch.JobSucceeded, batch.ReasonSuccessRule, "All replicas have succeeded."}, time.Time{}
}

// first returns the rule that began to hold first, and when it did: when the last of its members to end ended. The time
// is zero if it is not known. A rule holds if all of its members have ended for good with the result want. If no rule
// holds, first returns nil.
func (p *pass) first(rules []Rule, want ending) (first *Rule, since time.Time) {
	for i := range rules {
		if !p.all(rules[i].Members, want) {
			continue
		}
		var last time.Time
		for _, m := range rules[i].Members {
			r := &p.roles[m.Role][m.Rank]
			at := r.endedAt()
			if want == failed {
				at = p.failedAt(r)
			}
			if at.After(last) {
				last = at
			}
		}
		if first == nil || last.Before(since) {
			first, since = &rules[i], last
		}
	}
	return first, since
}

// failedAt returns when a replica failed; zero if the time is not known. If the pod does not show the time, failedAt
// returns the earliest time that is consistent with earlier passes.
func (p *pass) failedAt(r *replica) time.Time {
	if at := r.endedAt(); !at.IsZero() || r.pod == nil {
		return at
	}
	return p.end(r).At
}

// judgeUnsatisfiable fails a job if none of its success rules can hold any more, because such a job would never end.
// Without success rules, one replica that has failed for good is enough.
func (p *pass) judgeUnsatisfiable() verdict {
	v := verdict{phase: batch.JobFailed, reason: batch.ReasonSuccessRulesUnsatisfiable}
	for i := range p.Success {
		lost := p.anyFailed(p.Success[i].Members)
		if lost == nil {
			return verdict{}
		}
		v.message = fmt.Sprintf("No success rule can hold any more: %s needs replica %s, which has failed%s.",
			p.Success[i].Text, lost.name, lost.endText())
	}
	if len(p.Success) > 0 {
		return v
	}
	for i := range p.replicas {
		if r := &p.replicas[i]; r.final() && r.result == failed {
			v.message = fmt.Sprintf("Success needs every replica, and %s has failed%s.", r.name, r.endText())
			return v
		}
	}
	return verdict{}
}

// all reports whether every member has ended for good with the given result. It returns false if there are no members.
func (p *pass) all(members []Member, want ending) bool {
	for _, m := range members {
		if r := &p.roles[m.Role][m.Rank]; !r.final() || r.result != want {
			return false
		}
	}
	return len(members) > 0
}

func (p *pass) anyFailed(members []Member) *replica {
	for _, m := range members {
		if r := &p.roles[m.Role][m.Rank]; r.final() && r.result == failed {
			return r
		}
	}
	return nil
}

// exitText returns " with exit code N", or the empty string if the code is unknown.
func exitText(code *int32) string {
	if code == nil {
		return ""
	}
	return fmt.Sprintf(" with exit code %d", *code)
}
