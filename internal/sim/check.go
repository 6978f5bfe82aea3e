package sim

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// charged returns the minimum and maximum number of restarts that the ended pods of a replica may have cost.
func (w *world) charged(name string) (least, most int32) {
	policy := w.policy(name)
	for _, t := range w.past[name] {
		if !t.selfEnded || t.success && !policy.OnSuccess || !t.success && !restarts(&policy, t.exit) {
			continue
		}
		most++
		// A rank that was scaled down gets new counts, and a restart of all replicas is charged to only one of them.
		if !t.ambiguous && w.job.Elastic == nil && !w.restartsAll() {
			least++
		}
	}
	return least, most
}

// restarts reports whether a policy restarts a replica that failed with this exit code.
func restarts(policy *engine.Restart, code int32) bool {
	has := func(ranges []engine.CodeRange) bool {
		return slices.ContainsFunc(ranges, func(r engine.CodeRange) bool { return r.First <= code && code <= r.Last })
	}
	return !has(policy.FailCodes) && (policy.OnFailure || has(policy.RestartCodes))
}

// checkCreate checks a new pod against the history of the replica's earlier pods. A deposed operator may create an
// outdated pod, because the new leader has counted a restart in the meantime: checkCreate then returns true, and the
// leader must replace the pod.
func (w *world) checkCreate(pod *corev1.Pod, deposed bool) (outdated bool) {
	if finished(w.status) && !deposed {
		w.fail("pod %s created after the end", pod.Name)
	}
	w.checkUnsucceeded(pod)
	n, _ := strconv.Atoi(pod.Annotations[batch.AnnotationRestarts])
	least, most := w.charged(pod.Name)
	if deposed && int32(n) < least && attempt(pod) < attemptsOf(w.status)[pod.Name] {
		return true
	}
	if got := int32(n); got < least || got > most {
		w.fail("pod %s carries %d restarts, want %d to %d", pod.Name, got, least, most)
	}
	if limit := w.policy(pod.Name).Limit; limit != nil && int32(n) > *limit {
		w.fail("pod %s: restart %d beyond the limit %d", pod.Name, n, *limit)
	}
	return false
}

// checkUnsucceeded checks that a replica that gets a new pod had not succeeded for good.
func (w *world) checkUnsucceeded(pod *corev1.Pod) {
	t := w.last(pod.Name)
	// A rank that was scaled down starts with new counts, and a success may come too late for an incident of the whole
	// job.
	anew := w.job.Elastic != nil || slices.ContainsFunc(w.job.Roles, func(r engine.Role) bool { return r.Restart.All })
	// A pod that was deleted before a cache showed its end may be charged when its successor has already ended.
	ambiguous := slices.ContainsFunc(w.past[pod.Name], func(t truth) bool { return t.ambiguous })
	if t.selfEnded && t.success && t.reported && !ambiguous && !w.policy(pod.Name).OnSuccess && !anew {
		w.fail("pod %s is created, whose replica had succeeded", pod.Name)
	}
}

func (w *world) policy(name string) engine.Restart {
	for i := range w.job.Roles {
		if strings.HasPrefix(name, w.job.Name+"-"+w.job.Roles[i].Type+"-") {
			return w.job.Roles[i].Restart
		}
	}
	return engine.Restart{}
}

// checkStatus checks the invariants of a status that is about to be written.
func (w *world) checkStatus(s *batch.JobStatus) {
	a := s.Aggregate
	w.checkSize(s, int(a.Creating+a.Pending+a.Running+a.Succeeded+a.Failed+a.Unknown+a.Deleted))
	if len(s.Conditions) != 6 {
		w.fail("%d conditions, want 6", len(s.Conditions))
	}
	if isTrue(s, batch.JobCompleted) && isTrue(s, batch.JobFailedCondition) {
		w.fail("both Completed and Failed")
	}
	if finished(s) && isTrue(s, batch.JobRunningCondition) {
		w.fail("Running after the end")
	}
	if finished(w.status) && !sameEnd(w.status, s) {
		w.fail("the end changed: %v to %v", w.status.Conditions, s.Conditions)
	}
	if finished(s) && !finished(w.status) {
		w.checkEnd(s)
	}
	before, after := restartsOf(w.status), restartsOf(s)
	for name, n := range after {
		if n < before[name] {
			w.fail("restarts of %s went from %d to %d", name, before[name], n)
		}
		if _, most := w.charged(name); n > most {
			w.fail("%d restarts of %s, but only %d of its pods failed", n, name, most)
		}
	}
	w.checkIncidents(s)
}

// checkEnd checks the verdict against how the replicas' last pods really ended.
func (w *world) checkEnd(s *batch.JobStatus) {
	w.checkOrder(s)
	if reasonOf(s, batch.JobFailedCondition) == batch.ReasonDeadlineExceeded {
		if active := w.now.Sub(s.StartTime.Time); active < *w.job.Deadline {
			w.fail("the deadline is said to have passed after %s of %s", active, *w.job.Deadline)
		}
		return
	}
	won, lost := 0, 0
	for i := range w.job.Roles {
		for rank := range w.job.Roles[i].Replicas {
			if w.endedAs(w.job.PodName(w.job.Roles[i].Type, rank), true) {
				won++
			}
		}
	}
	for name := range w.past { // an elastic job may keep a replica that was scaled down, which may decide the end too
		if w.endedAs(name, false) {
			lost++
		}
	}
	if len(w.job.Success) == 0 && isTrue(s, batch.JobCompleted) && won != w.job.Replicas() {
		w.fail("Completed, but only %d of %d replicas succeeded", won, w.job.Replicas())
	}
	w.checkRule(s)
	if isTrue(s, batch.JobFailedCondition) && lost == 0 {
		w.fail("Failed, but no replica failed by itself: %+v", s.Conditions)
	}
}

func isTrue(s *batch.JobStatus, t batch.JobConditionType) bool {
	for _, c := range s.Conditions {
		if c.Type == t {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

func finished(s *batch.JobStatus) bool {
	return isTrue(s, batch.JobCompleted) || isTrue(s, batch.JobFailedCondition)
}

func sameEnd(a, b *batch.JobStatus) bool {
	return isTrue(a, batch.JobCompleted) == isTrue(b, batch.JobCompleted) &&
		isTrue(a, batch.JobFailedCondition) == isTrue(b, batch.JobFailedCondition) &&
		a.CompletionTime.Equal(b.CompletionTime) && a.Phase == b.Phase
}

func restartsOf(s *batch.JobStatus) map[string]int32 {
	out := map[string]int32{}
	for _, t := range s.Tasks {
		for _, r := range t.Replicas {
			out[r.Name] = r.RestartCount
		}
	}
	return out
}
