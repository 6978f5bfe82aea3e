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

// worthWriting tells whether the status is to be written now. An unchanged one never is. One that differs in nothing but
// replica phases and messages waits until Coalesce has passed since the last write, unless a pod is about to be deleted
// whose state nothing else will remember. So does the first one, where it would say only that the job starts.
func (p *pass) worthWriting(next *batch.JobStatus) bool {
	if equality.Semantic.DeepEqual(p.old, next) {
		return false
	}
	due := p.seen.LastWrite.Add(p.coalesce())
	tells := transition(p.old, next) && !p.onlyStarts(next) || len(p.plan.Delete) > 0
	if tells || !p.seen.Now.Before(due) {
		p.plan.MaxDelay = p.maxDelay(next, tells)
		return true
	}
	p.wakeAt(due)
	return false
}

// How long a status may be put off that tells of replica phases alone, that all replicas run, or of the end of a replica among
// others. What it costs an API server would start another pod.
const (
	phasesWait  = 20 * time.Second
	runningWait = 500 * time.Millisecond // people wait for it
	endWait     = 3 * time.Second        // nothing else remembers the end once somebody deletes the pod
)

// maxDelay is for how long the next status may be put off. One that tells of a transition may not, unless all replicas run now.
func (p *pass) maxDelay(next *batch.JobStatus, tells bool) time.Duration {
	wait := phasesWait
	switch {
	case tells && !p.onlyRuns(next):
		return 0
	case tells:
		wait = runningWait
	}
	if a, old := next.Aggregate, p.old.Aggregate; a.Succeeded > old.Succeeded || a.Failed > old.Failed {
		wait = min(wait, endWait)
	}
	return wait
}

// onlyRuns tells whether the next status says no more than that a job that was starting has started.
func (p *pass) onlyRuns(next *batch.JobStatus) bool {
	starting := p.unwritten() || p.old.Phase == batch.JobPending && p.old.ObservedGeneration == next.ObservedGeneration
	return starting && next.Phase == batch.JobRunning && next.Restarts == p.old.Restarts && len(p.plan.Delete) == 0
}

// coalesce is the least time between two writes of the status that tell of nothing but replica phases. The statuses of large
// jobs are large, and their replicas change phase for longer.
func (p *pass) coalesce() time.Duration {
	return p.cfg.Coalesce * time.Duration(1+len(p.replicas)/400)
}

// firstWave is the largest number of pods that are created before the first status is written. More would take so long that
// people should see the status first.
const firstWave = 100

// onlyStarts tells whether the first status would say nothing but that pods are being created. Usually they run a moment
// later, and one write tells both.
func (p *pass) onlyStarts(next *batch.JobStatus) bool {
	return p.unwritten() && next.Phase == batch.JobPending && len(p.replicas) <= firstWave &&
		condition(next, batch.JobRunningCondition).Reason == batch.ReasonCreatingReplicas
}

// transition tells whether two statuses differ in more than replica phases and messages.
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
	case p.waiting() == nil || p.goesOn():
		return batch.JobRunning
	case p.mode == batch.RunResume && (p.old.Phase == batch.JobPaused || p.old.Phase == batch.JobResuming):
		return batch.JobResuming
	default:
		return batch.JobPending
	}
}

// goesOn tells whether replicas of a job run on that all ran, while others start again. Where none runs, the job is back to
// waiting for all.
func (p *pass) goesOn() bool {
	ran := p.old.Phase == batch.JobRunning || p.old.Phase == batch.JobUnknown
	return ran && p.mode == p.old.RunMode && slices.ContainsFunc(p.replicas, func(r replica) bool { return r.phase == batch.ReplicaRunning })
}

// waiting is the first replica that the job waits for: one that neither runs nor has ended for good. An elastic job waits
// for no more than it needs.
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
		// Rounded, not cut off: the time to live counts from it.
		now := metav1.NewTime(p.seen.Now.Round(time.Second)).Rfc3339Copy()
		s.CompletionTime = &now
	}
}

// startTime is the StartTime of the next status.
func (p *pass) startTime() *metav1.Time {
	running := p.mode != batch.RunPause && !p.finished && !p.rejected
	if running && (p.old.StartTime == nil || p.old.RunMode == batch.RunPause) {
		return p.firstStart(metav1.NewTime(p.seen.Now).Rfc3339Copy())
	}
	return p.old.StartTime
}

// firstStart is when the first of the pods was created, if there are any and the job has not been paused, or else now.
func (p *pass) firstStart(now metav1.Time) *metav1.Time {
	first := now
	for i := range p.replicas {
		if pod := p.replicas[i].pod; pod != nil && p.old.RunMode == "" && pod.CreationTimestamp.Before(&first) {
			first = pod.CreationTimestamp
		}
	}
	return &first
}

// firstPod returns the first pod, by role and rank, for which f holds.
func (p *pass) firstPod(f func(*corev1.Pod) bool) *corev1.Pod {
	for i := range p.replicas {
		if pod := p.replicas[i].pod; pod != nil && f(pod) {
			return pod
		}
	}
	return nil
}
