package sim

import (
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// maxReportLag is the longest delay with which a kubelet reports an end.
const maxReportLag = 900 * time.Millisecond

// report is an end that a kubelet has not reported yet.
type report struct {
	code int32
	due  time.Time
}

// exit ends the main container of a pod; its sidecar may continue to run. The kubelet reports the end a little later.
func (w *world) exit(pod *corev1.Pod) {
	t := w.last(pod.Name)
	t.at, t.selfEnded = w.now, pod.Annotations[batch.AnnotationRunMode] != string(batch.RunDebug)
	t.ambiguous = t.ambiguous || w.job.Debug || w.status.RunMode == batch.RunDebug
	if w.chance(45) {
		t.exit = w.codes[w.rng.IntN(len(w.codes))]
	}
	t.success = t.exit == 0
	w.tracef("pod %s %s exits with %d", pod.Name, pod.UID, t.exit)
	w.reports[pod.Name] = report{t.exit, w.now.Add(time.Duration(w.rng.Int64N(int64(maxReportLag))))}
}

// report writes the end of a pod to the API server, as its kubelet does.
func (w *world) report(name string) {
	r, pod := w.reports[name], w.pods[name]
	delete(w.reports, name)
	t := w.last(name)
	t.reported = true
	if r.code != 0 && w.chance(15) {
		pod.Status.Reason = "Evicted" // the pod exceeded its own limit, so there is no DisruptionTarget
		if w.chance(40) {
			w.removeContainers(pod)
			return
		}
	} else if w.sidecarRuns(pod) {
		w.terminate(mainOf(pod), r.code, t.at)
		w.podChanged(name)
		return
	}
	w.end(pod, r.code, t.at)
}

// unknownExit stands for an unknown exit code.
const unknownExit = -1

// removeContainers ends a pod whose kubelet has removed the containers before it has read how they ended. The kubelet
// then reports containers that wait to be created.
func (w *world) removeContainers(pod *corev1.Pod) {
	w.last(pod.Name).exit = unknownExit
	pod.Status.Phase = corev1.PodFailed
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	}
	w.podChanged(pod.Name)
}

// reportDue reports all ends that are due, except on lost nodes.
func (w *world) reportDue() {
	for _, name := range sortedKeys(w.reports) {
		if !w.now.Before(w.reports[name].due) && !w.lost[w.pods[name].Spec.NodeName] {
			w.report(name)
		}
	}
}

// exitTogether ends all running pods, as a failed collective operation does.
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

// heldSince reports whether one of the rules holds, which means that all members of the rule have ended as it requires.
// since is the time at which the first such rule began to hold. heldSince ignores ends that the operator may not see,
// ends whose time it may not see, and ends after which the replica may be restarted.
func (w *world) heldSince(rules []engine.Rule, success bool) (since time.Time, held bool) {
	for _, rule := range rules {
		last, all := time.Time{}, true
		for _, m := range rule.Members {
			role := &w.job.Roles[m.Role]
			name := w.job.PodName(role.Type, m.Rank)
			t := w.last(name)
			if !t.selfEnded || t.ambiguous || t.exit == unknownExit || w.unreportable(name) || t.success != success || !w.final(name, role.Restart, t) {
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

// unreportable reports whether the end of a pod cannot be known, because its node is lost.
func (w *world) unreportable(name string) bool {
	_, unreported := w.reports[name]
	return unreported && w.lost[w.pods[name].Spec.NodeName]
}

// endedAs reports whether a replica ended by itself, with success or with failure as the argument says. It considers
// the last pod, and earlier pods that were removed before a cache may have shown their ends, because a cache may show
// such an end when the replica has further pods.
func (w *world) endedAs(name string, success bool) bool {
	all := w.past[name]
	for i := range all {
		t := &all[i]
		if t.selfEnded && t.success == success && (i == len(all)-1 || t.ambiguous || t.watched) {
			return true
		}
	}
	return false
}

// final reports whether a replica that ended as t says is certainly not restarted. If failures restart all replicas, a
// failure during an incident may be a consequence of the incident, and the replica then restarts whatever its exit
// code and limit are.
func (w *world) final(name string, policy engine.Restart, t *truth) bool {
	if t.success {
		return !policy.OnSuccess
	}
	if w.restartsAll() && policy.Restarts() && w.inIncident(name) {
		return false
	}
	return !restarts(&policy, t.exit) || policy.Limit != nil && t.restarts >= *policy.Limit
}

// inIncident reports whether an incident may be open that another replica began, or that the status records without a
// recovery.
func (w *world) inIncident(name string) bool {
	if i := w.status.Incident; i != nil && i.RecoveryTime == nil {
		return true
	}
	for other := range w.past {
		if t := w.last(other); other != name && t.selfEnded && !t.success {
			return true
		}
	}
	return false
}

// checkOrder checks a verdict against the order in which the pods really ended.
func (w *world) checkOrder(s *batch.JobStatus) {
	won, hasWon := w.heldSince(w.job.Success, true)
	lost, hasLost := w.heldSince(w.job.Failure, false)
	if !hasWon {
		return
	}
	switch {
	case reasonOf(s, batch.JobFailedCondition) == batch.ReasonDeadlineExceeded && w.readAt.Sub(won) > maxReportLag:
		w.fail("the deadline ends the job, which had succeeded at %s", won)
	case hasLost && isTrue(s, batch.JobCompleted) && !lost.After(won):
		w.fail("Completed, but it failed at %s and succeeded at %s", lost, won)
	case hasLost && reasonOf(s, batch.JobFailedCondition) == batch.ReasonFailureRule && lost.Sub(won) > 2*time.Second:
		w.fail("Failed, but it succeeded at %s and failed at %s", won, lost)
	}
}
