package plugin

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/scheduler/core"
)

// FieldManager owns the condition GroupScheduled of PodGroups.
const FieldManager = "t9k-scheduler"

// quiet is how long a message whose reason stays the same is not written again.
const quiet = 10 * time.Second

// settling is how long pods that a new group lacks are not reported.
const settling = 2 * time.Second

// groupReport is what the condition of a group says.
type groupReport struct {
	status          metav1.ConditionStatus
	reason, message string
	at, changed     time.Time
}

// groupReportOf is what was last reported of a group, by the scheduler that led before.
func groupReportOf(pg *scheduling.PodGroup) groupReport {
	for _, c := range pg.Status.Conditions {
		if c.Type == scheduling.GroupScheduled {
			return groupReport{status: c.Status, reason: c.Reason, message: c.Message, changed: c.LastTransitionTime.Time}
		}
	}
	return groupReport{}
}

// report says why a group waits: in the group's condition, unless its minimum runs, and on its pods.
func (pl *planner) report(g *group, d *core.Decision, now time.Time) {
	if d.Reason == core.Scheduled {
		return
	}
	if d.Reason == core.NotEnoughMembers && now.Sub(g.core.Created) < settling {
		g.reportAt = g.core.Created.Add(settling)
		return // its pods are just being made
	}
	if !d.Extra && !g.single && !g.core.Complete {
		pl.reportGroup(g, metav1.ConditionFalse, string(d.Reason), d.Message, now)
		pl.reportPods(g, podReason(d), fmt.Sprintf("waits until all of PodGroup %s can start: its condition %s says what is missing", g.key.Name, scheduling.GroupScheduled), now)
		return
	}
	pl.reportPods(g, podReason(d), d.Message, now)
}

// podReason is the reason of the condition PodScheduled of pods that wait. Autoscalers add nodes for pods that are
// Unschedulable, so none is for whose start more nodes do nothing.
func podReason(d *core.Decision) string {
	if d.LacksNodes {
		return corev1.PodReasonUnschedulable
	}
	return string(d.Reason)
}

// reportPods says on the pods of a group that wait why they do. Messages of a group that starts as a whole point to its
// condition, so that a pod costs a write only when its reason changes.
func (pl *planner) reportPods(g *group, reason, message string, now time.Time) {
	for _, o := range g.core.Pods {
		m := pl.index.pods[types.UID(o.UID)]
		if m == nil || o.Node != "" || o.Ending {
			continue
		}
		if m.lastReported == (podReport{}) {
			m.lastReported = podReportOf(m.pod) // by the scheduler that led before
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
		pl.conditions.pods.put(m.pod.UID, podWrite{podKey(m.pod), m.lastReported})
	}
}

// podReport is why a pod waits, as its condition says.
type podReport struct {
	reason, message string
	at              time.Time
}

// podReportOf is what was last reported of a pod.
func podReportOf(pod *corev1.Pod) podReport {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return podReport{reason: c.Reason, message: c.Message}
		}
	}
	return podReport{}
}

// completed reports of a group that its minimum is bound, or that it is not any more, for none of its pods runs. A
// scheduler that starts anew goes by it.
func (pl *planner) completed(g *group) {
	switch {
	case g.single || g.spec == nil:
	case g.core.Complete:
		pl.reportGroup(g, metav1.ConditionTrue, scheduling.ReasonScheduled, "", time.Now())
	case g.lastReported.status == metav1.ConditionTrue:
		pl.reportGroup(g, metav1.ConditionFalse, scheduling.ReasonNotEnoughMembers, "", time.Now())
	}
}

func (pl *planner) reportFailure(g *group, why string) {
	if !g.single && !g.core.Complete {
		pl.reportGroup(g, metav1.ConditionFalse, scheduling.ReasonBindingFailed, why, time.Now())
	}
}

// reportGroup has the condition of a group written, if it says something new.
func (pl *planner) reportGroup(g *group, status metav1.ConditionStatus, reason, message string, now time.Time) {
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
	pl.conditions.groups.put(g.key, scheduling.PodGroupCondition{Type: scheduling.GroupScheduled, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(s.changed), TransitionID: string(uuid.NewUUID())})
}
