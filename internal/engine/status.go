package engine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// writeStatus composes the next status and decides whether it is written now.
func (p *pass) writeStatus() {
	next := p.old.DeepCopy()
	next.Tasks = p.tasks()
	next.Aggregate = p.aggregate()
	next.Replicas = int32(len(p.replicas))
	if p.Elastic != nil {
		next.Selector = p.selector()
	}
	next.RunMode = p.mode
	next.ObservedGeneration = p.Generation
	next.Phase = p.phase()
	p.setIncident(next)
	p.next = next
	p.setTimes(next)
	p.setConditions(next)
	p.addRun(next)
	if !p.worthWriting(next) {
		return
	}
	p.plan.Status = next
	p.transitionEvents(next)
}

// worthWriting reports whether the status is to be written now. An unchanged status is never written. A status that
// differs only in replica phases and messages waits until the time that coalesce returns has passed since the last
// write, unless the plan deletes a pod, because only the status will then hold the state of that pod. The first status
// waits too if it would report only that the job starts. worthWriting sets Plan.MaxDelay or, if the status waits, the
// time of the next pass.
func (p *pass) worthWriting(next *batch.JobStatus) bool {
	if equality.Semantic.DeepEqual(p.old, next) {
		return false
	}
	due := p.seen.LastWrite.Add(p.coalesce())
	urgent := transition(p.old, next) && !p.onlyStarts(next) || len(p.plan.Delete) > 0
	if urgent || !p.seen.Now.Before(due) {
		p.plan.MaxDelay = p.maxDelay(next, urgent)
		return true
	}
	p.wakeAt(due)
	return false
}

// These delays bound how long a status write may wait if the status reports only replica phases, only that all replicas
// run, or also the end of a replica. For each status write that is saved, the API server can create another pod.
const (
	phasesWait  = 20 * time.Second
	runningWait = 500 * time.Millisecond // users wait for this report
	endWait     = 3 * time.Second        // if the pod is deleted meanwhile, the end is lost
)

// maxDelay returns for how long the next status may be delayed. urgent is true if the status reports a transition or
// the plan deletes a pod. An urgent status may wait only if it reports nothing but that a starting job now runs.
func (p *pass) maxDelay(next *batch.JobStatus, urgent bool) time.Duration {
	wait := phasesWait
	switch {
	case urgent && !p.onlyRuns(next):
		return 0
	case urgent:
		wait = runningWait
	}
	if a, old := next.Aggregate, p.old.Aggregate; a.Succeeded > old.Succeeded || a.Failed > old.Failed {
		wait = min(wait, endWait)
	}
	return wait
}

// onlyRuns reports whether the next status reports only that a starting job now runs.
func (p *pass) onlyRuns(next *batch.JobStatus) bool {
	starting := p.unwritten() || p.old.Phase == batch.JobPending && p.old.ObservedGeneration == next.ObservedGeneration
	return starting && next.Phase == batch.JobRunning && next.Restarts == p.old.Restarts && len(p.plan.Delete) == 0
}

// coalesce returns the minimum time between two status writes that report nothing but replica phases. It grows with the
// size of the job, because larger jobs have larger statuses and take longer to start.
func (p *pass) coalesce() time.Duration {
	return p.cfg.Coalesce * time.Duration(1+len(p.replicas)/400)
}

// firstWave is the largest number of pods that are created before the first status is written. Creating more takes so
// long that users should see a status first.
const firstWave = 100

// onlyStarts reports whether the next status is the first one, of a job with at most firstWave replicas, and would
// report only that pods are being created. The pods usually run a moment later, so one write can report both.
func (p *pass) onlyStarts(next *batch.JobStatus) bool {
	return p.unwritten() && next.Phase == batch.JobPending && len(p.replicas) <= firstWave &&
		condition(next, batch.JobRunningCondition).Reason == batch.ReasonCreatingReplicas
}

// transition reports whether two statuses differ in more than replica phases and messages.
func transition(old, next *batch.JobStatus) bool {
	if old.Phase != next.Phase || old.RunMode != next.RunMode || old.Restarts != next.Restarts || old.BackoffCount != next.BackoffCount ||
		old.Replicas != next.Replicas || old.ObservedGeneration != next.ObservedGeneration ||
		!old.StartTime.Equal(next.StartTime) || !old.CompletionTime.Equal(next.CompletionTime) ||
		len(old.Conditions) != len(next.Conditions) {
		return true
	}
	return !slices.EqualFunc(old.Conditions, next.Conditions, func(a, b batch.JobCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
}

func (p *pass) aggregate() batch.Aggregate {
	var a batch.Aggregate
	for i := range p.replicas {
		switch p.replicas[i].phase {
		case batch.ReplicaCreating:
			a.Creating++
		case batch.ReplicaPending:
			a.Pending++
		case batch.ReplicaRunning:
			a.Running++
		case batch.ReplicaSucceeded:
			a.Succeeded++
		case batch.ReplicaFailed:
			a.Failed++
		case batch.ReplicaDeleted:
			a.Deleted++
		default:
			a.Unknown++
		}
	}
	return a
}

func (p *pass) phase() batch.JobPhase {
	switch {
	case p.verdict.over():
		return p.verdict.phase
	case p.finished:
		return p.old.Phase
	case p.mode == batch.RunPause:
		return batch.JobPaused
	case slices.ContainsFunc(p.replicas, func(r replica) bool { return r.phase == batch.ReplicaUnknown }):
		return batch.JobUnknown
	case p.waiting() == nil || p.stillRuns():
		return batch.JobRunning
	case p.mode == batch.RunResume && (p.old.Phase == batch.JobPaused || p.old.Phase == batch.JobResuming):
		return batch.JobResuming
	default:
		return batch.JobPending
	}
}

// stillRuns reports whether some replicas of a running job still run while others start again. If none runs, the job is
// pending again.
func (p *pass) stillRuns() bool {
	ran := p.old.Phase == batch.JobRunning || p.old.Phase == batch.JobUnknown
	return ran && p.mode == p.old.RunMode && slices.ContainsFunc(p.replicas, func(r replica) bool { return r.phase == batch.ReplicaRunning })
}

// waiting returns the first replica that the job waits for: one that neither runs nor has ended for good. It returns
// nil if at least Min replicas of an elastic job run or have ended for good.
func (p *pass) waiting() *replica {
	var first *replica
	ready := 0
	for i := range p.replicas {
		r := &p.replicas[i]
		if r.phase == batch.ReplicaRunning || r.final() {
			ready++
		} else if first == nil {
			first = r
		}
	}
	if p.Elastic != nil && ready >= p.Elastic.Min {
		return nil
	}
	return first
}

func (p *pass) setTimes(s *batch.JobStatus) {
	s.StartTime = p.startTime()
	if p.verdict.over() {
		// The time is rounded, not truncated, because the TTL counts from it.
		now := metav1.NewTime(p.seen.Now.Round(time.Second)).Rfc3339Copy()
		s.CompletionTime = &now
	}
}

// startTime returns the StartTime of the next status.
func (p *pass) startTime() *metav1.Time {
	running := p.mode != batch.RunPause && !p.finished && !p.rejected
	if running && (p.old.StartTime == nil || p.old.RunMode == batch.RunPause) {
		return p.firstStart(metav1.NewTime(p.seen.Now).Rfc3339Copy())
	}
	return p.old.StartTime
}

// firstStart returns when the first pod was created, if there are pods and no status has been written; otherwise now.
func (p *pass) firstStart(now metav1.Time) *metav1.Time {
	first := now
	for i := range p.replicas {
		if pod := p.replicas[i].pod; pod != nil && p.old.RunMode == "" && pod.CreationTimestamp.Before(&first) {
			first = pod.CreationTimestamp
		}
	}
	return &first
}

// firstPod returns the first pod, by role and rank, for which f holds; nil if there is none.
func (p *pass) firstPod(f func(*corev1.Pod) bool) *corev1.Pod {
	for i := range p.replicas {
		if pod := p.replicas[i].pod; pod != nil && f(pod) {
			return pod
		}
	}
	return nil
}
