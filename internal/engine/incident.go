package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// ReasonBackOff is the reason of a replica that has ended and will restart after a delay.
const ReasonBackOff = "BackOff"

// incident holds what a pass knows about ends that lead to restarts. docs/designs/0009-incidents.md defines which ends
// form one incident.
type incident struct {
	// open is true while the last incident continues: not all replicas have run again since it began.
	open bool
	// allRan is the time at which all replicas ran again, if the pods show this time and the last status does not
	// record it; otherwise zero.
	allRan time.Time
	// first is the replica that begins a new incident; nil if none does. The incident begins when a replica that
	// belongs to it restarts. about describes the incident.
	first *replica
	about batch.Incident
	// lead is the replica with the earliest end among those whose end restarts all replicas; nil if there is none.
	// leadDue is the time at which all replicas may restart; together is true if they restart in this pass.
	lead     *replica
	leadDue  time.Time
	together bool
	// exceeded is the first failed replica whose restart would begin an incident beyond the job's limit; nil if there
	// is none.
	exceeded *replica
	// began is true if the new incident begins in this pass.
	began bool
	// recovered is the last incident if all replicas run again and the last status does not record that; otherwise nil.
	recovered *batch.Incident
}

// allowRestarts determines whether the last incident is still open, and which ended replicas may be restarted under
// their own limits and the job's limit. In debug mode and after the end of the job, it does nothing.
func (p *pass) allowRestarts() {
	if p.mode == batch.RunDebug || p.finished {
		return
	}
	if last := p.old.Incident; last != nil && last.RecoveryTime == nil {
		p.inc.allRan = p.ranTogether()
		p.inc.open = p.inc.allRan.IsZero()
	}
	for _, r := range p.ends() {
		p.allowRestart(r)
	}
	p.restartConsequences()
}

// ends returns the replicas whose end may lead to a restart of the replica or of all replicas, in the order of their
// ends.
func (p *pass) ends() []*replica {
	var ends []*replica
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.policyRestarts() || r.disrupted && r.ran && r.role.Restart.All {
			ends = append(ends, r)
		}
	}
	slices.SortStableFunc(ends, func(a, b *replica) int {
		switch c := a.endedAt().Compare(b.endedAt()); {
		case c != 0 || a.disrupted == b.disrupted:
			return c
		case a.disrupted: // the loss of this replica may have made the others fail
			return -1
		default:
			return 1
		}
	})
	return ends
}

// policyRestarts reports whether the policy restarts the replica after its result, regardless of limits.
func (r *replica) policyRestarts() bool {
	switch r.result {
	case succeeded:
		return r.role.Restart.OnSuccess
	case failed:
		return r.role.Restart.afterFailure(r.exit)
	default:
		return false
	}
}

// allowRestart decides whether one replica may be restarted, and records in p.inc whether its end begins a new incident
// or restarts all replicas. The caller passes replicas in the order of their ends.
func (p *pass) allowRestart(r *replica) {
	in := &p.inc
	joinsOpen := in.open && in.first == nil && (r.disrupted || r.past.incident != p.incidents())
	if !r.disrupted && !p.hasRestart(r, joinsOpen) {
		return
	}
	r.due, r.fresh = r.result != notEnded, !joinsOpen
	if r.fresh && in.first == nil {
		in.first, in.about = r, p.describe(r)
	}
	if !r.restartsAll() {
		return
	}
	if in.lead == nil {
		in.lead, in.leadDue = r, r.dueAt
	}
	if r.dueAt.Before(in.leadDue) {
		in.leadDue = r.dueAt
	}
}

// hasRestart reports whether a replica has a restart left. If the job's limit prevents the restart of a failed replica,
// hasRestart records the first such replica in exceeded. joinsOpen is true if the replica's end belongs to the open
// incident.
func (p *pass) hasRestart(r *replica, joinsOpen bool) bool {
	joins := joinsOpen || p.inc.first != nil
	if limit := r.role.Restart.Limit; limit != nil && r.restarts >= *limit {
		// before is true if the replica had already failed for good when the incident began.
		before := joinsOpen && r.endedAt().Before(p.old.Incident.StartTime.Time)
		return joins && r.restartsAll() && !before
	}
	if joins || p.RestartLimit == nil || p.charged() < *p.RestartLimit {
		return true
	}
	if r.result == failed && p.inc.exceeded == nil {
		p.inc.exceeded = r
	}
	return false
}

// restartsAll reports whether the replica's end restarts all replicas.
func (r *replica) restartsAll() bool { return r.role.Restart.All && r.result != succeeded }

// restartConsequences marks for restart the replicas that failed together with the lead or after it, unless they have
// no pod or their policy never restarts. Their failures count as consequences of the lead's failure, so their exit
// codes do not matter.
func (p *pass) restartConsequences() {
	lead := p.inc.lead
	if lead == nil {
		return
	}
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.result == failed && !r.due && r.pod != nil && r.role.Restart.Restarts() && !r.endedAt().Before(lead.endedAt()) {
			r.due, r.fresh, r.consequence = true, lead.fresh, true
		}
	}
}

// Restarts reports whether there is an end after which the policy restarts a replica.
func (x *Restart) Restarts() bool { return x.OnSuccess || x.OnFailure || len(x.RestartCodes) > 0 }

// ranTogether returns the time at which all replicas that the job waits for had started. It returns zero if a replica
// that the policy restarts had ended by then, if the pods do not show the time, or if the job is elastic.
func (p *pass) ranTogether() time.Time {
	begin := p.old.Incident.StartTime.Time
	latest := begin
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.result != notEnded && !r.policyRestarts() && r.endedAt().Before(begin) {
			continue
		}
		if r.pod == nil || r.remove || p.Elastic != nil {
			return time.Time{}
		}
		started := startedAt(r.pod)
		if started.IsZero() {
			return started
		}
		if started.After(latest) {
			latest = started
		}
	}
	for i := range p.replicas {
		if r := &p.replicas[i]; r.result != notEnded && r.policyRestarts() && r.endedAt().Before(latest) {
			return time.Time{}
		}
	}
	return latest
}

// startTogether decides whether all replicas restart in this pass.
func (p *pass) startTogether() {
	in := &p.inc
	switch {
	case in.lead == nil || p.finished || p.verdict.over() || p.mode == batch.RunPause:
	case p.seen.Now.Before(in.leadDue):
		p.wakeAt(in.leadDue)
	default:
		in.together, in.began = true, in.lead.fresh
	}
}

// restartsWithAll reports whether a replica restarts because all replicas do.
func (p *pass) restartsWithAll(r *replica) bool {
	return p.inc.together && r.role.Restart.Restarts() && !r.final()
}

// restart replaces the pod of a replica that ended by itself, and charges the restart, if the restart is allowed and
// due. Otherwise it stops the sidecars of the pod.
func (p *pass) restart(r *replica) {
	waitsForAll := r.restartsAll() || r.consequence
	switch {
	case !r.due:
		p.stopSidecars(r)
		return
	case waitsForAll || p.seen.Now.Before(r.dueAt):
		r.reason = ReasonBackOff
		p.stopSidecars(r)
		if !waitsForAll {
			p.wakeAt(r.dueAt)
		}
		return
	}
	r.restarts++
	p.restarts = append(p.restarts, r)
	p.replace(r, r.backoffAfterRestart(p.cfg))
}

// restartWithAll replaces the pod of a replica because all replicas restart. Only the replica whose own end began the
// incident is charged; if a disruption began it, none is.
func (p *pass) restartWithAll(r *replica) {
	if r == p.inc.first && p.inc.about.Charged {
		r.restarts++
	}
	p.replace(r, p.inc.lead.backoffAfterRestart(p.cfg))
}

// replace starts the next attempt of a replica: it plans the deletion of the current pod or, if there is none, the
// creation of the next one. If the replica ended by itself, replace also records the incident, which may begin here.
func (p *pass) replace(r *replica, backoff int32) {
	if r.result != notEnded {
		r.incident = p.incidents()
		if r.fresh {
			p.inc.began = true
			r.incident++
		}
	}
	r.backoff = backoff
	r.attempt++
	r.uid, r.disrupted = "", false
	r.phase, r.reason = batch.ReplicaCreating, "Restarting"
	p.replaced++
	if r.pod == nil {
		p.create = append(p.create, r)
		return
	}
	p.deletePod(r.pod)
}

// backoffAfterRestart returns the number of consecutive replacements, counting the one that is due now.
func (r *replica) backoffAfterRestart(cfg *Config) int32 {
	if r.pod == nil {
		return r.backoff + 1
	}
	return r.nextBackoff(cfg)
}

// incidents returns the number of incidents so far. If the status was lost, the number comes from the pods'
// annotations.
func (p *pass) incidents() int32 { return p.counted(p.old.Restarts, batch.AnnotationJobRestarts) }

// charged returns the number of charged incidents so far. Like incidents, it falls back to the pods' annotations.
func (p *pass) charged() int32 { return p.counted(p.old.BackoffCount, batch.AnnotationBackoffCount) }

func (p *pass) counted(n int32, annotation string) int32 {
	if p.old.RunMode == "" {
		for _, pod := range p.seen.Pods {
			n = max(n, count(pod.Annotations[annotation]))
		}
	}
	return bounded(n)
}

// setIncident writes the numbers of all and of charged incidents, the description of the last one and the time of its
// recovery into the status.
func (p *pass) setIncident(s *batch.JobStatus) {
	in := &p.inc
	s.Restarts, s.BackoffCount = p.incidents(), p.charged()
	waits := p.replaced > 0 || p.finished || p.verdict.over() || p.mode == batch.RunPause || p.mode == batch.RunDebug
	switch {
	case !in.allRan.IsZero():
		p.recovered(s, in.allRan)
	case in.open && !waits && p.waiting() == nil:
		p.recovered(s, p.seen.Now)
	}
	if !in.began {
		return
	}
	about := in.about
	s.Incident = &about
	s.Restarts++
	if about.Charged {
		s.BackoffCount++
	}
}

func (p *pass) recovered(s *batch.JobStatus, at time.Time) {
	t := metav1.NewTime(at).Rfc3339Copy()
	s.Incident.RecoveryTime = &t
	p.inc.recovered = s.Incident
}

// describe returns the description of the incident that a replica begins. It must be called before the replica's pod is
// replaced.
func (p *pass) describe(r *replica) batch.Incident {
	at := r.endedAt()
	if at.IsZero() || at.After(p.seen.Now) { // the clock of the pod's node is ahead
		at = p.seen.Now
	}
	i := batch.Incident{Replica: r.name, Scope: batch.RestartReplica, Charged: !r.disrupted, ExitCode: r.exit, Reason: r.reason,
		StartTime: metav1.NewTime(at).Rfc3339Copy()}
	if r.restartsAll() {
		i.Scope = batch.RestartJob
	}
	if r.pod != nil && !r.disrupted {
		i.Message = r.terminationLine()
	}
	return i
}

// maxTerminationLine is the largest number of characters that are quoted from a line of a termination message.
const maxTerminationLine = 256

// terminationLine returns the last line of the termination message of the first container that failed, cut to
// maxTerminationLine; empty if there is none.
func (r *replica) terminationLine() string {
	for _, t := range r.role.ends(r.pod) {
		if t.ExitCode == 0 {
			continue
		}
		text := strings.TrimRightFunc(t.Message, unicode.IsSpace)
		line := []rune(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
		if len(line) > maxTerminationLine {
			line = append(line[:maxTerminationLine-1], '…')
		}
		return string(line)
	}
	return ""
}

// recoveryTime returns how long an incident with a RecoveryTime lasted, from its start until all replicas ran again.
func recoveryTime(i *batch.Incident) time.Duration {
	return max(i.RecoveryTime.Sub(i.StartTime.Time), 0)
}

// ended returns a clause about the end that began an incident, for example "mnist-worker-3 failed with exit code 1".
func ended(i *batch.Incident) string {
	var text string
	switch {
	case !i.Charged:
		text = i.Replica + " was disrupted"
	case i.ExitCode != nil && *i.ExitCode == 0:
		text = i.Replica + " ended"
	default:
		text = i.Replica + " failed"
	}
	return because(text+exitText(i.ExitCode), i.Reason)
}

// incidentText returns a summary of the last incident, for example "Retry 1 of 3: mnist-worker-3 failed with exit code
// 1: out of memory".
func (p *pass) incidentText(s *batch.JobStatus) string {
	i := s.Incident
	number := fmt.Sprintf("Restart %d", s.Restarts)
	switch {
	case !i.Charged:
		number += ", not charged"
	case p.RestartLimit != nil:
		number = fmt.Sprintf("Retry %d of %d", s.BackoffCount, *p.RestartLimit)
	}
	text := number + ": " + ended(i)
	if i.Message != "" {
		text += ": " + i.Message
	}
	return strings.TrimSuffix(text, ".")
}
