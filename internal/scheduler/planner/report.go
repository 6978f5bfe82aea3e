package planner

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
	"tensorstack.dev/batch/internal/tracing"
)

// quiet is the minimum interval between two writes to a pod, and between two writes of a group's condition that have
// the same status and reason.
const quiet = 10 * time.Second

// settling is the time for which missing pods of a new group are not reported.
const settling = 2 * time.Second

// groupReport is the content of a group's condition. at is the time of the report, and changed the time since which the
// condition has its status.
type groupReport struct {
	status          metav1.ConditionStatus
	reason, message string
	at, changed     time.Time
}

// groupReportOf returns the report in the condition of a PodGroup, which an earlier leader may have written. The report
// is empty if there is no condition.
func groupReportOf(pg *scheduling.PodGroup) groupReport {
	for _, c := range pg.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return groupReport{status: c.Status, reason: c.Reason, message: c.Message, changed: c.LastTransitionTime.Time}
		}
	}
	return groupReport{}
}

// report writes why a group waits: to the condition of the PodGroup, unless the group's minimum is placed or was bound
// once, and to the waiting pods. Missing pods of a new group are reported only after settling.
func (pl *Planner) report(g *group, d *core.Decision, now time.Time) {
	if d.Reason == core.Scheduled {
		return
	}
	if d.Reason == core.NotEnoughMembers && now.Sub(g.Created) < settling {
		g.reportAt = g.Created.Add(settling)
		return // the controller is still creating the pods
	}
	if !d.Extra && !g.single && !g.Complete {
		pl.reportGroup(g, metav1.ConditionFalse, string(d.Reason), d.Message, now)
		pl.reportPods(g, podReason(d), fmt.Sprintf("waits until all of PodGroup %s can start: its condition %s says what is missing", g.key.Name, scheduling.GroupScheduled), now)
		return
	}
	pl.reportPods(g, podReason(d), d.Message, now)
}

// podReason returns the reason for the condition PodScheduled of waiting pods. Autoscalers add nodes for Unschedulable
// pods, so podReason returns a different reason if more nodes would not help.
func podReason(d *core.Decision) string {
	if d.LacksNodes {
		return corev1.PodReasonUnschedulable
	}
	return string(d.Reason)
}

// reportPods writes to the waiting pods of a group why they wait. For a group that starts as a whole, report passes a
// message that refers to the group's condition, so that a pod needs a write only when its reason changes. If the last
// write to a pod is less than quiet ago, reportPods sets reportAt instead.
func (pl *Planner) reportPods(g *group, reason, message string, now time.Time) {
	for _, o := range g.Pods {
		m := pl.index.pods[types.UID(o.UID)]
		if m == nil || o.Node != "" || o.Ending {
			continue
		}
		if m.lastReported == (podReport{}) {
			m.lastReported = podReportOf(m.object) // an earlier leader may have written it
		}
		if m.lastReported.reason == reason && m.lastReported.message == message {
			continue
		}
		if until := m.lastReported.at.Add(quiet); now.Before(until) {
			if g.reportAt.IsZero() || until.Before(g.reportAt) {
				g.reportAt = until
			}
			continue
		}
		m.lastReported = podReport{reason: reason, message: message, at: now}
		pl.writer.Pod(m.object, reason, message)
	}
}

// podReport is the content of a pod's condition PodScheduled.
type podReport struct {
	reason, message string
	at              time.Time
}

// podReportOf returns the reason and message of the condition PodScheduled of a pod, or an empty report if the
// condition is not False.
func podReportOf(pod *corev1.Pod) podReport {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return podReport{reason: c.Reason, message: c.Message}
		}
	}
	return podReport{}
}

// reportStarts reports, for each group whose pods have changed, that its minimum is bound or that it has lost all pods
// that had started. A new leader reads this from the condition.
func (pl *Planner) reportStarts(now time.Time) {
	touched := pl.index.touched
	pl.index.touched = nil
	if !pl.index.filled {
		return
	}
	for _, g := range touched {
		pl.reportStart(g, now)
	}
}

func (pl *Planner) reportStart(g *group, now time.Time) {
	switch {
	case g.single || g.spec == nil:
	case g.Complete:
		var spans []tracing.Span
		if g.lastReported.status != metav1.ConditionTrue {
			g.countWait(now)
			spans = pl.scheduleSpans(g, now)
		}
		pl.reportGroup(g, metav1.ConditionTrue, scheduling.ReasonScheduled, "", now, spans...)
	case !g.started && g.lastReported.status == metav1.ConditionTrue:
		pl.reportGroup(g, metav1.ConditionFalse, scheduling.ReasonNotEnoughMembers, "", now)
	}
}

func (pl *Planner) reportFailure(g *group, why string, now time.Time) {
	if !g.single && !g.Complete {
		pl.reportGroup(g, metav1.ConditionFalse, scheduling.ReasonBindingFailed, why, now)
	}
}

// reportGroup queues a write of the group's condition if the condition has changed. If only the message has changed and
// the last write is less than quiet ago, it sets reportAt instead, so that a later round reports again. The spans are
// recorded once the condition is written.
func (pl *Planner) reportGroup(g *group, status metav1.ConditionStatus, reason, message string, now time.Time, spans ...tracing.Span) {
	s := &g.lastReported
	if s.status == status && s.reason == reason && s.message == message {
		return
	}
	if s.status == status && s.reason == reason && now.Sub(s.at) < quiet {
		g.reportAt = s.at.Add(quiet)
		return
	}
	if s.status != status {
		s.changed = now
	}
	s.status, s.reason, s.message, s.at = status, reason, message, now
	pl.writer.Group(g.key, scheduling.PodGroupCondition{Type: scheduling.GroupScheduled, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(s.changed), TransitionID: string(uuid.NewUUID())}, spans)
}

// evict evicts the pods of a decision.
func (pl *Planner) evict(d *core.Decision) {
	message, cause := fmt.Sprintf("%s: preempting to make room for group %s", scheduling.SchedulerName, d.Group.Name), "preemption"
	if d.Reservation == nil {
		message, cause = fmt.Sprintf("%s: group %s was bound in part only and could not be completed", scheduling.SchedulerName, d.Group.Name), "incomplete"
	}
	for _, p := range d.Evict {
		if m := pl.index.pods[types.UID(p.UID)]; m != nil {
			pl.writer.Evict(m.object, message, cause)
		}
	}
}
