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

// incident is what a pass finds out about ends that lead to a restart. Those that belong together are one incident, as
// docs/designs/0009-incidents.md defines it.
type incident struct {
	// open is true while the last incident goes on: not all replicas have run again since it began.
	open bool
	// allRan is when they did, where only the pods tell so far.
	allRan time.Time
	// first is the replica that begins a new incident, as soon as one that belongs to it restarts; nil where none does. about
	// describes it.
	first *replica
	about batch.Incident
	// lead is the earliest of the replicas whose end restarts all; nil where there is none. leadDue is when all may restart,
	// together whether they do in this pass.
	lead     *replica
	leadDue  time.Time
	together bool
	// exceeded is a replica whose restart would begin a new incident beyond the job's limit.
	exceeded *replica
	// began is true where the new incident begins in this pass.
	began bool
}

// allowRestarts finds the replicas that ended and may be restarted, by their own limits and that of the job.
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
	p.takeAlong()
}

// ends lists the replicas that ended in a way that their policy restarts, or that restarts all, the earliest end first.
func (p *pass) ends() []*replica {
	var ends []*replica
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.wanted() || r.disrupted && r.ran && r.role.Restart.All {
			ends = append(ends, r)
		}
	}
	slices.SortStableFunc(ends, func(a, b *replica) int {
		switch c := a.endedAt().Compare(b.endedAt()); {
		case c != 0 || a.disrupted == b.disrupted:
			return c
		case a.disrupted: // who was taken away may have broken the others
			return -1
		default:
			return 1
		}
	})
	return ends
}

// wanted tells whether the policy restarts a replica after what it ended with.
func (r *replica) wanted() bool {
	switch r.result {
	case succeeded:
		return r.role.Restart.OnSuccess
	case failed:
		return r.role.Restart.afterFailure(r.exit)
	default:
		return false
	}
}

// allowRestart decides about one replica that ended. All that ended earlier are decided about.
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

// hasRestart tells whether a restart is left for a replica, and notes if the job's limit is in its way. joinsOpen tells that its
// end belongs to the open incident.
func (p *pass) hasRestart(r *replica, joinsOpen bool) bool {
	joins := joinsOpen || p.inc.first != nil
	if limit := r.role.Restart.Limit; limit != nil && r.restarts >= *limit {
		before := joinsOpen && r.endedAt().Before(p.old.Incident.StartTime.Time) // so it had failed for good
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

// restartsAll tells whether the replica's end restarts all.
func (r *replica) restartsAll() bool { return r.role.Restart.All && r.result != succeeded }

// takeAlong lets the replicas restart whose failure is a consequence of one that restarts all, whatever their policy says of it.
func (p *pass) takeAlong() {
	lead := p.inc.lead
	if lead == nil {
		return
	}
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.result == failed && !r.due && r.pod != nil && r.role.Restart.Restarts() && !r.endedAt().Before(lead.endedAt()) {
			r.due, r.fresh = true, lead.fresh
		}
	}
}

// Restarts tells whether there is an end after which the policy restarts a replica.
func (x *Restart) Restarts() bool { return x.OnSuccess || x.OnFailure || len(x.RestartCodes) > 0 }

// ranTogether is when all replicas had started that the job waits for, if none that restarts had ended by then; zero where that
// has not happened, or the pods do not tell.
func (p *pass) ranTogether() time.Time {
	begin := p.old.Incident.StartTime.Time
	latest := begin
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.result != notEnded && !r.wanted() && r.endedAt().Before(begin) {
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
		if r := &p.replicas[i]; r.result != notEnded && r.wanted() && r.endedAt().Before(latest) {
			return time.Time{}
		}
	}
	return latest
}

// startTogether finds out whether all replicas restart in this pass.
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

// goesAlong tells whether a replica restarts because all do.
func (p *pass) goesAlong(r *replica) bool {
	return p.inc.together && r.role.Restart.Restarts() && !r.final()
}

// restart replaces a pod that ended by itself, if that is due, and charges it.
func (p *pass) restart(r *replica) {
	waitsForAll := r.restartsAll()
	switch {
	case !r.due:
		p.stopSidecars(r)
		return
	case waitsForAll || p.seen.Now.Before(r.dueAt):
		r.reason = "BackOff"
		p.stopSidecars(r)
		if !waitsForAll {
			p.wakeAt(r.dueAt)
		}
		return
	}
	r.restarts++
	p.restarts = append(p.restarts, r)
	p.replace(r, r.afterThis(p.cfg))
}

// restartAlong replaces the pod of a replica because all restart. Only the one that began the incident is charged.
func (p *pass) restartAlong(r *replica) {
	if r == p.inc.first && p.inc.about.Charged {
		r.restarts++
	}
	p.replace(r, p.inc.lead.afterThis(p.cfg))
}

// replace supersedes a replica's pod, if it has one: the next attempt counts.
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

// afterThis is the number of replacements in a row once the replica has been replaced.
func (r *replica) afterThis(cfg *Config) int32 {
	if r.pod == nil {
		return r.backoff + 1
	}
	return r.nextBackoff(cfg)
}

// incidents is the number of incidents so far, charged the number of those that are charged. Of a status that was lost, the
// pods still tell.
func (p *pass) incidents() int32 { return p.counted(p.old.Restarts, batch.AnnotationJobRestarts) }

func (p *pass) charged() int32 { return p.counted(p.old.BackoffCount, batch.AnnotationBackoffCount) }

func (p *pass) counted(n int32, annotation string) int32 {
	if p.old.RunMode == "" {
		for _, pod := range p.seen.Pods {
			n = max(n, count(pod.Annotations[annotation]))
		}
	}
	return bounded(n)
}

// setIncident writes down the incidents so far and what there is to say of the last one.
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
	p.event(normal(batch.EventRecovered, "All replicas run again %s after %s.", took(s.Incident), ended(s.Incident)))
}

// describe says what is known of the replica that begins an incident. It is called before its pod is replaced.
func (p *pass) describe(r *replica) batch.Incident {
	at := r.endedAt()
	if at.IsZero() {
		at = p.seen.Now
	}
	i := batch.Incident{Replica: r.name, Scope: batch.RestartReplica, Charged: !r.disrupted, ExitCode: r.exit, Reason: r.reason,
		StartTime: metav1.NewTime(at).Rfc3339Copy()}
	if r.restartsAll() {
		i.Scope = batch.RestartJob
	}
	if r.pod != nil && !r.disrupted {
		i.Message = r.lastWords()
	}
	return i
}

// maxLastWords is the length to which a line of a termination message is cut.
const maxLastWords = 256

// lastWords is the last line of the termination message of the container that failed; empty where there is none.
func (r *replica) lastWords() string {
	for t := range r.role.ends(r.pod) {
		if t.ExitCode == 0 {
			continue
		}
		text := strings.TrimRightFunc(t.Message, unicode.IsSpace)
		line := []rune(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
		if len(line) > maxLastWords {
			line = append(line[:maxLastWords-1], '…')
		}
		return string(line)
	}
	return ""
}

// took is how long it was until all replicas ran again.
func took(i *batch.Incident) time.Duration { return max(i.RecoveryTime.Sub(i.StartTime.Time), 0) }

// ended says how the replica ended that began an incident: "mnist-worker-3 failed with exit code 1".
func ended(i *batch.Incident) string {
	var text string
	switch {
	case !i.Charged:
		text = i.Replica + " was taken away"
	case i.ExitCode != nil && *i.ExitCode == 0:
		text = i.Replica + " ended"
	default:
		text = i.Replica + " failed"
	}
	return because(text+exitText(i.ExitCode), i.Reason)
}

// incidentText sums up the last incident: "Retry 1 of 3: mnist-worker-3 failed with exit code 1: out of memory".
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
