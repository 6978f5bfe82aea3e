package sim

import (
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// maxReportLag is how late a kubelet reports an end at most.
const maxReportLag = 900 * time.Millisecond

// report is an end that a kubelet is about to report.
type report struct {
	code int32
	due  time.Time
}

// exit ends the main container of a pod, which its sidecar may outlive. The kubelet reports that a little later.
func (w *world) exit(pod *corev1.Pod) {
	t := w.last(pod.Name)
	t.at, t.selfEnded = w.now, pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
	t.blurred = t.blurred || w.job.Debug || w.status.RunMode == batch.RunDebug
	if w.chance(45) {
		t.exit = w.codes[w.rng.IntN(len(w.codes))]
	}
	t.success = t.exit == 0
	w.tell("pod %s %s exits with %d", pod.Name, pod.UID, t.exit)
	w.reports[pod.Name] = report{t.exit, w.now.Add(time.Duration(w.rng.Int64N(int64(maxReportLag))))}
}

// report has the API server know of an end.
func (w *world) report(name string) {
	r, pod := w.reports[name], w.pods[name]
	delete(w.reports, name)
	t := w.last(name)
	t.reported = true
	if r.code != 0 && w.chance(15) {
		pod.Status.Reason = "Evicted" // for a limit of its own, so without DisruptionTarget
	} else if s := statusOf(pod, sidecar); s != nil && s.State.Running != nil {
		w.terminate(mainOf(pod), r.code, t.at)
		w.podChanged(name)
		return
	}
	w.end(pod, r.code, t.at)
}

// reportDue reports the ends that are due.
func (w *world) reportDue() {
	for _, name := range sortedKeys(w.reports) {
		if !w.now.Before(w.reports[name].due) && !w.lost[w.pods[name].Spec.NodeName] {
			w.report(name)
		}
	}
}

// exitTogether ends all pods that run, as a collective operation that breaks does.
func (w *world) exitTogether() {
	for _, name := range sortedKeys(w.pods) {
		pod := w.pods[name]
		if _, unreported := w.reports[name]; !unreported && !decided(pod) && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !w.lost[pod.Spec.NodeName] {
			w.exit(pod)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// heldSince tells whether all members of one of the rules have ended as told, and by which moment those of the first such rule
// had. An end does not count if somebody may not have seen it, or, with a failure, if a restart may be left.
func (w *world) heldSince(rules []engine.Rule, success bool) (since time.Time, held bool) {
	for _, rule := range rules {
		last, all := time.Time{}, true
		for _, m := range rule.Members {
			role := &w.job.Roles[m.Role]
			name := w.job.PodName(role.Type, m.Rank)
			t := w.last(name)
			if !t.selfEnded || t.blurred || w.untold(name) || t.success != success || !final(role.Restart, t) {
				all = false
				break
			}
			if t.at.After(last) {
				last = t.at
			}
		}
		if all && (!held || last.Before(since)) {
			since, held = last, true
		}
	}
	return since, held
}

// untold tells whether nobody can know that a pod has ended, since its node has been lost.
func (w *world) untold(name string) bool {
	_, unreported := w.reports[name]
	return unreported && w.lost[w.pods[name].Spec.NodeName]
}

// outcome is what became of a replica. A pod that has ended and that somebody deleted before a cache showed it is known to have
// ended when others are there already.
func (w *world) outcome(name string) *truth {
	all := w.past[name]
	n := len(all)
	for n > 1 && !all[n-1].selfEnded {
		n--
	}
	if n > 0 && n < len(all) && all[n-1].selfEnded && (all[n-1].blurred || all[n-1].watched) {
		return &all[n-1]
	}
	return w.last(name)
}

// final tells whether a replica that ended so is not restarted for certain.
func final(policy engine.Restart, t *truth) bool {
	if t.success {
		return !policy.OnSuccess
	}
	return !restarts(&policy, t.exit) || policy.Limit != nil && t.restarts >= *policy.Limit
}

// checkOrder holds a verdict against the order in which the pods really ended.
func (w *world) checkOrder(s *batch.JobStatus) {
	won, hasWon := w.heldSince(w.job.Success, true)
	lost, hasLost := w.heldSince(w.job.Failure, false)
	if !hasWon {
		return
	}
	switch {
	case reasonOf(s, batch.JobFailedCondition) == batch.ReasonDeadlineExceeded && w.now.Sub(won) > maxReportLag:
		w.fail("the deadline ends the job, which had succeeded at %s", won)
	case hasLost && isTrue(s, batch.JobCompleted) && !lost.After(won):
		w.fail("Completed, but it failed at %s and succeeded at %s", lost, won)
	case hasLost && reasonOf(s, batch.JobFailedCondition) == batch.ReasonFailureRule && lost.Sub(won) > 2*time.Second:
		w.fail("Failed, but it succeeded at %s and failed at %s", won, lost)
	}
}
