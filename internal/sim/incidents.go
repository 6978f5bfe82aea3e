package sim

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// incidents is the part of the true history on which the counts of incidents depend.
type incidents struct {
	// allRan holds the times at which all replicas that had not ended for good were running.
	allRan []time.Time
	// disturbed is the time at which pods were last removed or the job was last changed.
	disturbed time.Time
	// creates is the number of created pods when the status last recorded an incident.
	creates int
}

// restartsAll reports whether the failure of a replica may restart all replicas.
func (w *world) restartsAll() bool {
	return slices.ContainsFunc(w.job.Roles, func(r engine.Role) bool { return r.Restart.All })
}

// noteRun records the current time in allRan if all replicas run. Replicas that may have ended for good count as
// running. So do those that ended in the current second, because the times in the status of a pod are whole seconds.
func (w *world) noteRun() {
	for i := range w.job.Roles {
		for rank := range w.job.Roles[i].Replicas {
			name := w.job.PodName(w.job.Roles[i].Type, rank)
			pod, t := w.pods[name], w.last(name)
			switch {
			case t.selfEnded && (!w.restartable(name, t) || !t.at.Before(stamp(w.now).Time)):
			case pod == nil, pod.Status.Phase != corev1.PodRunning:
				return
			}
		}
	}
	w.inc.allRan = append(w.inc.allRan, w.now)
}

// restartable reports whether an end leads to a restart, however many restarts there were before.
func (w *world) restartable(name string, t *truth) bool {
	policy := w.policy(name)
	return policy.Limit == nil && w.wanted(name, t)
}

// wanted reports whether the policy restarts a replica after the end.
func (w *world) wanted(name string, t *truth) bool {
	policy := w.policy(name)
	return t.success && policy.OnSuccess || !t.success && restarts(&policy, t.exit)
}

// checkIncidents checks the counts of incidents against the true history and the job's limit.
func (w *world) checkIncidents(s *batch.JobStatus) {
	most := int32(0)
	for name := range w.past {
		_, m := w.charged(name)
		most += m
	}
	if s.BackoffCount > most {
		w.fail("backoffCount %d, but only %d pods failed", s.BackoffCount, most)
	}
	w.checkSteps(s)
	old := w.status
	if s.Restarts > old.Restarts {
		w.checkBegin(s)
		w.inc.creates = w.creates
	}
	if i := s.Incident; i != nil && i.RecoveryTime != nil && (old.Incident == nil || old.Incident.RecoveryTime == nil) && s.Restarts == old.Restarts {
		w.checkRecovery(s)
	}
	w.checkEachCounts(s)
}

// checkSteps checks the counts of incidents against the previous counts and the job's limit.
func (w *world) checkSteps(s *batch.JobStatus) {
	old := w.status
	switch n := s.BackoffCount; {
	case n < old.BackoffCount || n > old.BackoffCount+1 || s.Restarts < old.Restarts || s.Restarts > old.Restarts+1:
		w.fail("backoffCount went from %d to %d, restarts from %d to %d", old.BackoffCount, n, old.Restarts, s.Restarts)
	case s.Restarts-n < old.Restarts-old.BackoffCount:
		w.fail("a charge without an incident: %d of %d, then %d of %d", old.BackoffCount, old.Restarts, n, s.Restarts)
	case w.job.RestartLimit != nil && n > *w.job.RestartLimit:
		w.fail("backoffCount %d is beyond the limit %d", n, *w.job.RestartLimit)
	case s.Restarts > n && !w.restartsAll():
		w.fail("%d incidents and %d charged, though none restarts all", s.Restarts, n)
	case reasonOf(s, batch.JobFailedCondition) == batch.ReasonBackoffLimitExceeded && n != *w.job.RestartLimit:
		w.fail("the limit %d is said to be used up after %d", *w.job.RestartLimit, n)
	}
}

// checkBegin checks that a charged incident is real: the replica failed by itself, and either all replicas have run
// since the previous incident, or the replica failed for the second time in it.
func (w *world) checkBegin(s *batch.JobStatus) {
	i, before := s.Incident, w.status.Incident
	if !i.Charged || w.skew < 0 { // the start of the incident comes from the clock of a node
		return
	}
	since := time.Time{}
	if before != nil {
		since = before.StartTime.Time
	}
	failures := w.endsSince(i.Replica, since)
	if failures == 0 {
		w.fail("%s began an incident, but did not fail since %s", i.Replica, since)
	}
	ran := slices.ContainsFunc(w.inc.allRan, func(t time.Time) bool { return !t.Before(since) })
	if before != nil && !ran && failures < 2 && w.inc.disturbed.Before(since) && w.job.Elastic == nil && !w.seemedToRun(i.Replica, before) {
		w.fail("%s is charged with an incident within the one that %s began at %s", i.Replica, before.Replica, since)
	}
}

// seemedToRun reports whether a replica ended before the recovery that the status records. At the recovery, the cache
// may still have shown the replica running, because the simulated cache, unlike a watch, shows each pod with its own
// lag.
func (w *world) seemedToRun(name string, i *batch.Incident) bool {
	return i.RecoveryTime != nil && !w.last(name).at.After(i.RecoveryTime.Time)
}

// endsSince counts the ends of a replica since a time, apart from disruptions, that led to a restart or were the
// consequence of another end.
func (w *world) endsSince(name string, since time.Time) int {
	n, pods := 0, w.past[name]
	for k, t := range pods {
		counted := k+1 == len(pods) || !pods[k+1].created.Before(since) // the end time of a deleted pod is not known
		consequence := !t.success && w.restartsAll()                    // whatever its exit code is
		if t.selfEnded && (consequence || w.wanted(name, &t)) && counted {
			n++
		}
	}
	return n
}

// checkRecovery checks that all pods that an incident replaces are new.
func (w *world) checkRecovery(s *batch.JobStatus) {
	if s.Incident.Scope != batch.RestartJob || w.job.Elastic != nil {
		return
	}
	for name, pod := range w.pods {
		policy := w.policy(name)
		if n, _ := strconv.Atoi(string(pod.UID[1:])); policy.Restarts() && !ended(pod) && !w.last(name).selfEnded && n <= w.inc.creates {
			w.fail("all are said to run again, and %s is older than the incident", name)
		}
	}
}

// checkEachCounts checks that, if replicas restart alone, two failures of one replica never belong to one incident.
func (w *world) checkEachCounts(s *batch.JobStatus) {
	if w.restartsAll() || w.job.Elastic != nil {
		return
	}
	for name, n := range restartsOf(s) {
		if n > s.Restarts {
			w.fail("%s restarted %d times in %d incidents", name, n, s.Restarts)
		}
	}
}

func attempt(pod *corev1.Pod) int32 {
	n, _ := strconv.Atoi(pod.Labels[batch.LabelReplicaAttempt])
	return int32(n)
}

func attemptsOf(s *batch.JobStatus) map[string]int32 {
	out := map[string]int32{}
	for _, t := range s.Tasks {
		for _, r := range t.Replicas {
			out[r.Name] = r.Attempt
		}
	}
	return out
}
