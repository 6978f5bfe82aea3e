package engine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EndTime is when a pod ended, by the clock of Seen.Now.
type EndTime struct {
	// At is the time of the end, which Next determines when it first sees the end. Seen is the Now of that call.
	At, Seen time.Time
}

// nextStart returns the earliest time at which a replica's pod may be replaced; zero means immediately. The first of
// several consecutive replacements is immediate, the second comes after BackoffBase, and the delay then doubles up to
// BackoffMax. If the pod may have a log, the replacement comes at least LogReadTime after this process saw the end.
func (p *pass) nextStart(r *replica) (at time.Time) {
	if delay := backoffDelay(r.nextBackoff(p.cfg), p.cfg); delay > 0 {
		at = p.end(r).At.Add(delay)
	}
	if stays := p.logReadTime(r); stays > 0 {
		if read := p.end(r).Seen.Add(stays); read.After(at) {
			at = read
		}
	}
	return at
}

// logReadTime returns how long the pod of an ended replica must remain after this process saw the end, so that its log
// can be read; zero if no container has started, because there is no log then. The time does not count from the end
// itself, because a slow kubelet can report the end seconds later, and nobody reads the log before that report.
func (p *pass) logReadTime(r *replica) time.Duration {
	if started, _ := r.role.lifetime(r.pod); started.IsZero() {
		return 0
	}
	return p.cfg.LogReadTime
}

// logUnread reports whether the pod of an ended replica must remain because its log may not have been read yet.
func (p *pass) logUnread(r *replica) bool {
	stays := p.logReadTime(r)
	if stays == 0 || r.pod.DeletionTimestamp != nil {
		return false
	}
	until := p.end(r).Seen.Add(stays)
	if !p.seen.Now.Before(until) {
		return false
	}
	p.wakeAt(until)
	return true
}

// reportLag is how long a pod may appear to run after its end: one second until its kubelet notices, and one for the
// rounding of times.
const reportLag = 2 * time.Second

// end returns when the pod of an ended replica ended. The time in the pod comes from the clock of its node, which may
// be wrong by any amount. end therefore limits this time to the range that the process knows: at most reportLag before
// the last pass, which did not show the end; not before the creation of the pod; and not in the future. Later passes
// return the same times.
func (p *pass) end(r *replica) EndTime {
	end, known := p.seen.Ends[r.pod.UID]
	if !known {
		_, finished := r.role.lifetime(r.pod)
		if finished.IsZero() {
			finished = disruptedAt(r.pod)
		}
		now := p.seen.Now
		ago := min(now.Sub(finished), now.Sub(r.pod.CreationTimestamp.Time))
		if !p.seen.LastPass.IsZero() {
			ago = min(ago, now.Sub(p.seen.LastPass)+reportLag)
		}
		// At keeps the monotonic reading of now, so that later clock steps have no effect.
		end = EndTime{At: now.Add(-max(ago, 0)), Seen: now}
	}
	if p.plan.Ends == nil {
		p.plan.Ends = map[types.UID]EndTime{}
	}
	p.plan.Ends[r.pod.UID] = end
	return end
}

// backoffDelay returns the delay before the n-th consecutive replacement; zero for the first.
func backoffDelay(n int32, cfg *Config) time.Duration {
	if n <= 1 {
		return 0
	}
	d := cfg.BackoffBase
	for i := int32(2); i < n && d < cfg.BackoffMax; i++ {
		d *= 2
	}
	return min(d, cfg.BackoffMax)
}

// disruptedAt returns the time of the disruption of a pod that has no ended container: the latest transition of its
// conditions, or its creation if it has none.
func disruptedAt(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for i := range pod.Status.Conditions {
		if t := pod.Status.Conditions[i].LastTransitionTime.Time; t.After(at) {
			at = t
		}
	}
	return at
}
