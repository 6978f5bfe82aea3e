package engine

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// Event is a Kubernetes event about the job.
type Event struct {
	// Type is Normal or Warning.
	Type    string
	Reason  batch.Reason
	Message string
	// Replicas lists the names of the replicas that the event is about, as far as the message names them; nil for an
	// event about the whole job.
	Replicas []string
	// Ends lists the ends of these replicas, in a form that programs can read; nil for all events except
	// ReplicaRestarted and ReplicaDisrupted.
	Ends []ReplicaEnd
}

// maxNamed is the largest number of replicas that one event names.
const maxNamed = 10

func normal(reason batch.Reason, format string, args ...any) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func warning(reason batch.Reason, format string, args ...any) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// of returns the event with the given names as its Replicas, at most maxNamed.
func (e Event) of(replicas ...string) Event {
	e.Replicas = replicas[:min(len(replicas), maxNamed)]
	return e
}

func (p *pass) event(e Event) { p.plan.Events = append(p.plan.Events, e) }

// transitionEvents emits the events about the transitions from the old status to the next. The next status is written
// under an optimistic lock, so each transition is reported at most once.
func (p *pass) transitionEvents(next *batch.JobStatus) {
	p.modeEvents(next)
	if p.Elastic != nil && p.old.RunMode != "" && next.Replicas != p.old.Replicas {
		p.event(normal(batch.EventJobScaled, "Scaling from %d to %d replicas.", p.old.Replicas, next.Replicas))
	}
	if i := p.inc.recovered; i != nil {
		p.event(normal(batch.EventRecovered, "All replicas run again %s after %s.", recoveryTime(i), ended(i)).of(i.Replica))
	}
	if p.inc.began {
		p.incidentEvent(next)
	}
	p.replicaEvents()
	p.refusalEvents(next)
	if conditionTrue(next, batch.JobRunningCondition) && !conditionTrue(p.old, batch.JobRunningCondition) {
		p.event(normal(batch.ReasonReplicasRunning, "%s", condition(next, batch.JobRunningCondition).Message))
	}
	if next.Phase == p.old.Phase {
		return
	}
	switch next.Phase {
	case batch.JobSucceeded:
		p.event(normal(batch.ReasonSuccessRule, "%s", p.verdict.message))
		p.heldResources()
	case batch.JobFailed:
		p.event(warning(p.verdict.reason, "%s", p.verdict.message))
		p.heldResources()
	}
}

func (p *pass) incidentEvent(next *batch.JobStatus) {
	who := counted(int32(p.replaced), "replica restarts", "replicas restart")
	if p.inc.together {
		who += " together"
	}
	p.event(warning(batch.EventIncident, "%s. %s.", p.incidentText(next), who).of(next.Incident.Replica))
}

func (p *pass) modeEvents(next *batch.JobStatus) {
	switch {
	case next.RunMode == p.old.RunMode || p.rejected:
	case next.RunMode == batch.RunPause:
		p.event(normal(batch.EventJobPaused, "The job is paused; its pods are ending."))
	case p.old.RunMode == batch.RunPause:
		p.event(normal(batch.EventJobResumed, "The job resumes with %s.", counted(next.Replicas, "replica", "replicas")))
	// The first status shows a later phase than Pending, and other events report that phase.
	case p.old.RunMode == "" && next.Phase != batch.JobPending && next.RunMode == batch.RunImmediate:
	case p.old.RunMode == "" || next.RunMode == batch.RunDebug:
		p.event(normal(batch.EventJobStarted, "Starting %s in mode %s.", counted(next.Replicas, "replica", "replicas"), next.RunMode))
	}
}

func (p *pass) replicaEvents() {
	var restarted, lost []ReplicaEnd
	var failures, failed []string
	for _, r := range p.restarts {
		restarted = append(restarted, r.chargedEnd(p.Roles[r.Role].Restart.Limit))
	}
	for i := range p.replicas {
		r := &p.replicas[i]
		if p.mode == p.old.RunMode && r.replacedUncharged() {
			lost = append(lost, ReplicaEnd{Replica: r.name, Reason: r.past.reason})
		}
		if p.mode != batch.RunDebug && r.newlyFailed() {
			failures, failed = append(failures, r.name+" failed"+r.endText()), append(failed, r.name)
		}
	}
	if len(restarted) > 0 {
		p.event(ofEnds(normal(batch.EventReplicaRestarted, "Restarting: %s.", fewEnds(restarted)), restarted))
	}
	if len(lost) > 0 {
		p.event(ofEnds(warning(batch.EventReplicaDisrupted, "Replaced after a disruption, no restart counted: %s.", fewEnds(lost)), lost))
	}
	if len(failures) > 0 {
		p.event(warning(batch.ReasonReplicaFailed, "For good: %s.", few(failures)).of(failed...))
	}
}

// lostEvent emits an event about the pods that are deleted by force. A pod has the name of its replica.
func (p *pass) lostEvent() {
	if len(p.lost) == 0 {
		return
	}
	var names, clauses []string
	for _, pod := range p.lost {
		names, clauses = append(names, pod.Name), append(clauses, because(pod.Name, pod.Spec.NodeName))
	}
	p.event(warning(batch.EventNodeLost, "Deleting by force, because their nodes are lost: %s.", few(clauses)).of(names...))
}

// replacedUncharged reports whether the replica's pod replaces another one, or is being replaced, without a charged
// restart: after a disruption, or because all replicas restart. A replacement for another run mode does not count.
func (r *replica) replacedUncharged() bool {
	return r.pod != nil && r.past.uid != "" && r.past.reason != reasonModeChanged &&
		r.attempt > r.past.attempt && r.restarts == r.past.restarts
}

func (r *replica) newlyFailed() bool {
	return r.final() && r.result == failed && r.past.phase != batch.ReplicaFailed
}

// refusalEvents emits an event when the Running condition begins to show one of the obstacles. It emits no event when
// only the message changes, for example a number or the first pod; the condition shows the current message.
func (p *pass) refusalEvents(next *batch.JobStatus) {
	c := condition(next, batch.JobRunningCondition)
	old := condition(p.old, batch.JobRunningCondition)
	if !slices.Contains(obstacles, c.Reason) || old != nil && old.Reason == c.Reason {
		return
	}
	p.event(warning(c.Reason, "%s", c.Message))
}

// obstacles are the reasons of the Running condition that say why a job does not start and on which a person may have
// to act.
var obstacles = []batch.Reason{batch.ReasonNameTaken, batch.ReasonCreateRefused, batch.ReasonUnschedulable, batch.ReasonImpossible, batch.ReasonNotStarted}

// heldResources emits a warning if pods still run after their job has finished and clean-up leaves them.
func (p *pass) heldResources() {
	n := 0
	for i := range p.replicas {
		r := &p.replicas[i]
		// A pod that is too old does not count, because its queue is about to end it.
		if r.pod != nil && r.phase != batch.ReplicaDeleted && r.role.classify(r.pod) == notEnded && !tooOld(r.pod) {
			n++
		}
	}
	for _, pod := range p.leftovers {
		if holdsResources(pod) {
			n++
		}
	}
	if n > 0 && p.CleanUp != batch.CleanUpAll && p.CleanUp != batch.CleanUpUnfinished {
		p.event(warning(batch.EventReplicasHoldResources,
			"The job has finished, and %d of its pods still hold resources, because cleanUpPolicy is None. Set it to Unfinished to end them.", n))
	}
}

// holdsResources reports whether a pod has not ended and is not being deleted.
func holdsResources(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func because(name, reason string) string {
	if reason == "" {
		return name
	}
	return name + " (" + reason + ")"
}

// few joins up to maxNamed names and counts the rest.
func few(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}
