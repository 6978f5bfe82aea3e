package engine

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

func condition(s *batch.JobStatus, t batch.JobConditionType) *batch.JobCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

func conditionTrue(s *batch.JobStatus, t batch.JobConditionType) bool {
	c := condition(s, t)
	return c != nil && c.Status == metav1.ConditionTrue
}

// setConditions writes all conditions, each once and in a fixed order. A condition gets a new transition time only if
// its status has changed.
func (p *pass) setConditions(s *batch.JobStatus) {
	all := []batch.JobCondition{
		p.initializedCondition(),
		p.runningCondition(s),
		p.replicaFailureCondition(),
	}
	all = append(all, p.endConditions(s)...)
	all = append(all, p.pausedCondition())
	stamp(s, all, metav1.NewTime(p.seen.Now).Rfc3339Copy())
}

// initializedCondition returns the Initialized condition, which says whether the job was accepted. The condition stays
// True if a job that has started is rejected later.
func (p *pass) initializedCondition() batch.JobCondition {
	if old := condition(p.old, batch.JobInitialized); p.finished && old != nil {
		return *old
	}
	if p.rejected && p.old.StartTime == nil {
		return is(batch.JobInitialized, false, batch.ReasonInvalidSpec, p.Invalid)
	}
	return is(batch.JobInitialized, true, batch.ReasonAccepted, "The controller has accepted the job.")
}

func stamp(s *batch.JobStatus, all []batch.JobCondition, now metav1.Time) {
	for i := range all {
		all[i].LastTransitionTime = now
		if old := condition(s, all[i].Type); old != nil && old.Status == all[i].Status {
			all[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	s.Conditions = all
}

func is(t batch.JobConditionType, yes bool, reason batch.Reason, message string) batch.JobCondition {
	c := batch.JobCondition{Type: t, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if yes {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// runningCondition returns the Running condition, which says whether every replica that the job waits for runs, and if
// not, why.
func (p *pass) runningCondition(s *batch.JobStatus) batch.JobCondition {
	no := func(reason batch.Reason, message string) batch.JobCondition {
		return is(batch.JobRunningCondition, false, reason, message)
	}
	a := s.Aggregate
	switch {
	case p.finished || p.verdict.over():
		return no(batch.ReasonJobFinished, "The job has finished.")
	case p.mode == batch.RunPause:
		return no(batch.ReasonPaused, "The job is paused.")
	case s.Phase == batch.JobRunning && p.waiting() != nil: // some replicas start again while the others run
	case s.Phase == batch.JobRunning && p.mode == batch.RunDebug:
		return is(batch.JobRunningCondition, true, batch.ReasonDebugging, counted(a.Running, "replica runs", "replicas run")+" the debug command.")
	case s.Phase == batch.JobRunning:
		return is(batch.JobRunningCondition, true, batch.ReasonReplicasRunning, p.runningMessage(s))
	case s.Phase == batch.JobUnknown:
		return no(batch.ReasonReplicaUnknown, fmt.Sprintf("The state of %s cannot be obtained.", counted(a.Unknown, "replica", "replicas")))
	}
	reason, message := p.pendingReason()
	if reason == batch.ReasonRestarting && s.Incident != nil && s.Incident.RecoveryTime == nil {
		message = p.incidentText(s) + "."
	}
	return no(reason, fmt.Sprintf("%d of %d replicas run. %s", a.Running, s.Replicas, message))
}

// runningMessage returns the message of a Running condition that is True: the numbers of replicas that run and that
// have ended, the last recovery, and how many replicas are still awaited and why.
func (p *pass) runningMessage(s *batch.JobStatus) string {
	a := s.Aggregate
	message := runningText(a)
	if i := s.Incident; i != nil && i.RecoveryTime != nil {
		message += fmt.Sprintf(" %s; all ran again after %s.", p.incidentText(s), recoveryTime(i))
	}
	if rest := s.Replicas - a.Running - a.Succeeded - a.Failed; rest > 0 {
		_, why := p.pendingReason()
		message = fmt.Sprintf("%s %s %s", message, counted(rest, "more is awaited.", "more are awaited."), why)
	}
	return message
}

func runningText(a batch.Aggregate) string {
	parts := []string{counted(a.Running, "replica runs", "replicas run")}
	if a.Succeeded > 0 {
		parts = append(parts, counted(a.Succeeded, "has succeeded", "have succeeded"))
	}
	if a.Failed > 0 {
		parts = append(parts, counted(a.Failed, "has failed", "have failed"))
	}
	return strings.Join(parts, ", ") + "."
}

// counted returns the number followed by the singular or the plural text.
func counted(n int32, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// pendingReason returns why the job waits. The most specific reason wins.
func (p *pass) pendingReason() (batch.Reason, string) {
	// Refusals from another run mode are out of date.
	if len(p.seen.Refusals) > 0 && (p.old.RunMode == "" || p.old.RunMode == p.mode) {
		r := p.seen.Refusals[0]
		return r.Reason, fmt.Sprintf("Cannot create %s: %s", r.Object, r.Message)
	}
	if reason, message := p.unscheduled(); message != "" {
		return reason, message
	}
	if pod := p.firstPod(func(pod *corev1.Pod) bool { return waitingContainer(pod) != nil }); pod != nil {
		w := waitingContainer(pod)
		return batch.ReasonNotStarted, strings.TrimSuffix(fmt.Sprintf("Pod %s: %s: %s", pod.Name, w.Reason, w.Message), ": ")
	}
	if w := p.seen.Warning; w != nil {
		return batch.ReasonNotStarted, fmt.Sprintf("Pod %s: %s", w.Pod, w.Message)
	}
	for i := range p.replicas {
		if r := &p.replicas[i]; r.phase != batch.ReplicaRunning && !r.final() && (r.attempt > 0 || r.result != notEnded || r.disrupted) {
			return batch.ReasonRestarting, "Replacing " + r.name + "."
		}
	}
	return batch.ReasonCreatingReplicas, "Starting replicas."
}

// unscheduled returns why the scheduler has not placed the job's group or one of its pods; empty if it has placed them,
// or if the reason is not known yet.
func (p *pass) unscheduled() (batch.Reason, string) {
	if c := groupWaits(p.seen.Group); p.Gang != nil && c != nil {
		return waitReason(c.Reason), "PodGroup: " + c.Message
	}
	pod := p.firstPod(unschedulable)
	if pod == nil || p.groupUnreported() {
		return "", ""
	}
	c := scheduledCondition(pod)
	return waitReason(c.Reason), fmt.Sprintf("Pod %s: %s", pod.Name, c.Message)
}

// groupUnreported reports whether the job has a gang, and the scheduler has not yet set the condition GroupScheduled of
// its PodGroup. Until then, the conditions of the pods only refer to the condition of the group.
func (p *pass) groupUnreported() bool {
	return p.Gang != nil && (p.seen.Group == nil || !slices.ContainsFunc(p.seen.Group.Status.Conditions,
		func(c scheduling.PodGroupCondition) bool { return c.Type == scheduling.GroupScheduled }))
}

func scheduledCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func unschedulable(pod *corev1.Pod) bool {
	c := scheduledCondition(pod)
	return pod.Spec.NodeName == "" && c != nil && c.Status == corev1.ConditionFalse && c.Message != ""
}

// groupWaits returns the condition GroupScheduled of a PodGroup that the scheduler has not scheduled. It returns nil if
// the group does not exist or is scheduled, and if the condition is missing or has no message yet.
func groupWaits(g *scheduling.PodGroup) *scheduling.PodGroupCondition {
	if g == nil {
		return nil
	}
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == scheduling.GroupScheduled && c.Status != metav1.ConditionTrue && c.Message != "" {
			return c
		}
	}
	return nil
}

// waitReason returns the reason of the Running condition that corresponds to a reason of the scheduler.
func waitReason(scheduler string) batch.Reason {
	if scheduler == scheduling.ReasonImpossible {
		return batch.ReasonImpossible
	}
	return batch.ReasonUnschedulable
}

func (p *pass) replicaFailureCondition() batch.JobCondition {
	n, first := 0, ""
	for i := range p.replicas {
		if r := &p.replicas[i]; r.final() && r.result == failed && p.mode != batch.RunDebug {
			if n++; n == 1 {
				first = r.name + " failed" + r.endText()
			}
		}
	}
	switch n {
	case 0:
		return is(batch.JobReplicaFailure, false, batch.ReasonNoReplicaFailed, "No replica has failed for good.")
	case 1:
		return is(batch.JobReplicaFailure, true, batch.ReasonReplicaFailed, first+".")
	default:
		return is(batch.JobReplicaFailure, true, batch.ReasonReplicaFailed, fmt.Sprintf("%s, and %d other replicas failed.", first, n-1))
	}
}

// endConditions returns the conditions Completed and Failed. Once one of them is True, neither changes again.
func (p *pass) endConditions(s *batch.JobStatus) []batch.JobCondition {
	v := p.verdict
	if p.finished {
		v.phase = batch.JobSucceeded
		if conditionTrue(s, batch.JobFailedCondition) {
			v.phase = batch.JobFailed
		}
	}
	completed, fails := verdictConditions(v)
	if p.finished {
		completed, fails = kept(s, completed), kept(s, fails)
	}
	return []batch.JobCondition{completed, fails}
}

// kept returns the condition of c's type in s; c if s has none.
func kept(s *batch.JobStatus, c batch.JobCondition) batch.JobCondition {
	if old := condition(s, c.Type); old != nil {
		return *old
	}
	return c
}

// verdictConditions returns the conditions Completed and Failed for a verdict.
func verdictConditions(v verdict) (completed, fails batch.JobCondition) {
	switch v.phase {
	case batch.JobSucceeded:
		return is(batch.JobCompleted, true, v.reason, v.message),
			is(batch.JobFailedCondition, false, batch.ReasonJobSucceeded, "The job has succeeded.")
	case batch.JobFailed:
		return is(batch.JobCompleted, false, batch.ReasonJobFailed, "The job has failed."),
			is(batch.JobFailedCondition, true, v.reason, v.message)
	default:
		return is(batch.JobCompleted, false, batch.ReasonNotFinished, "The job has not finished."),
			is(batch.JobFailedCondition, false, batch.ReasonNotFinished, "The job has not finished.")
	}
}

func (p *pass) pausedCondition() batch.JobCondition {
	old := condition(p.old, batch.JobPausedCondition)
	switch {
	case p.finished && old != nil:
		return *old
	case p.mode == batch.RunPause && !p.verdict.over():
		return is(batch.JobPausedCondition, true, batch.ReasonPaused, "runMode.pause is enabled.")
	case p.resumed():
		return is(batch.JobPausedCondition, false, batch.ReasonResumed, "The job was paused and has been resumed.")
	default:
		return is(batch.JobPausedCondition, false, batch.ReasonNotPaused, "The job has not been paused.")
	}
}
