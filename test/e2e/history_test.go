package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// history records every version of the jobs and pods of a namespace, and holds each version of a job against what is true
// of every status. So each test of the package is a test of these invariants too.
type history struct {
	s *space
	t testing.TB

	mu   sync.Mutex
	jobs map[string][]client.Object // by name, without versions whose status is the same
	pods map[types.UID]*corev1.Pod  // as last seen
	seen map[string]time.Time       // when something was first seen: a pod by its UID, JOB/PHASE, JOB/pods, JOB/gone
}

// record follows the namespace until the test ends.
func (s *space) record() *history {
	h := &history{s: s, t: s.t, jobs: map[string][]client.Object{}, pods: map[types.UID]*corev1.Pod{}, seen: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	for _, k := range kinds.All {
		wg.Go(func() {
			see := func(objects []client.Object) bool { return h.seeJobs(k, objects) }
			_ = follow(ctx, s.client, listOf(k), see, client.InNamespace(s.ns)) // ends with ctx
		})
	}
	wg.Go(func() { _ = follow(ctx, s.client, &corev1.PodList{}, h.seePods, client.InNamespace(s.ns)) })
	s.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return h
}

// see notes when something was seen for the first time.
func (h *history) see(what string) {
	if _, ok := h.seen[what]; !ok {
		h.seen[what] = time.Now()
	}
}

// firstSeen is the time at which something was seen for the first time.
func (h *history) firstSeen(what string) time.Time {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.seen[what]
	if !ok {
		h.t.Fatalf("%s has not been seen", what)
	}
	return at
}

// seeJobs sees all jobs of one kind.
func (h *history) seeJobs(kind kinds.Kind, objects []client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[string]bool{}
	for _, j := range objects {
		there[j.GetName()] = true
		h.see(j.GetName() + "/" + string(statusOf(j).Phase))
		past := h.jobs[j.GetName()]
		if len(past) > 0 && past[len(past)-1].GetResourceVersion() == j.GetResourceVersion() {
			continue
		}
		var last client.Object
		if len(past) > 0 && past[len(past)-1].GetUID() == j.GetUID() {
			last = past[len(past)-1]
		}
		h.check(last, j)
		h.jobs[j.GetName()] = append(past, j)
	}
	for name, past := range h.jobs {
		if !there[name] && kindOf(past[0]).Name == kind.Name {
			h.see(name + "/gone")
		}
	}
	return false
}

func (h *history) seePods(objects []client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range typed[*corev1.Pod](objects) {
		h.pods[p.UID] = p
		h.see(string(p.UID))
		h.see(p.Labels[batch.LabelJobName] + "/pods")
	}
	return false
}

// check holds a version of a job against the invariants of every status and of every change of one.
func (h *history) check(last, j client.Object) {
	now := statusOf(j)
	if len(now.Conditions) == 0 && now.Phase == "" {
		return // nothing has been written yet
	}
	wrong := func(format string, args ...any) {
		h.t.Errorf("job %s at version %s: "+format, append([]any{j.GetName(), j.GetResourceVersion()}, args...)...)
	}
	checkConditions(j, wrong)
	checkCounts(j, wrong)
	if last != nil {
		checkChange(last, j, wrong)
	}
}

func checkConditions(j client.Object, wrong func(string, ...any)) {
	all := []batch.JobConditionType{batch.JobInitialized, batch.JobRunningCondition, batch.JobReplicaFailure, batch.JobCompleted,
		batch.JobFailedCondition, batch.JobPausedCondition}
	for _, t := range all {
		if c := condition(j, t); c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
			wrong("condition %s lacks something: %+v", t, c)
		}
	}
	now := statusOf(j)
	if len(now.Conditions) != len(all) {
		wrong("%d conditions, want %d", len(now.Conditions), len(all))
	}
	completed, failed := isTrue(j, batch.JobCompleted), isTrue(j, batch.JobFailedCondition)
	finished := completed || failed
	if completed && failed || finished && isTrue(j, batch.JobRunningCondition) {
		wrong("the conditions contradict each other: %+v", now.Conditions)
	}
	if completed != (now.Phase == batch.JobSucceeded) || failed != (now.Phase == batch.JobFailed) {
		wrong("phase %s and conditions disagree: %+v", now.Phase, now.Conditions)
	}
	if finished != (now.CompletionTime != nil) {
		wrong("phase %s and completion time %v disagree", now.Phase, now.CompletionTime)
	}
}

func checkCounts(j client.Object, wrong func(string, ...any)) {
	if condition(j, batch.JobInitialized).Status != metav1.ConditionTrue {
		return // nothing is counted of a job that was not accepted
	}
	now := statusOf(j)
	want := replicasOf(j)
	if elasticOf(j) != nil {
		want = now.Replicas // the spec may be newer
	}
	a := now.Aggregate
	if sum := a.Creating + a.Pending + a.Running + a.Succeeded + a.Failed + a.Unknown + a.Deleted; sum != want {
		wrong("the aggregate %+v adds up to %d, want %d", a, sum, want)
	}
	total := checkTasks(j, wrong)
	// Each charged incident is charged to a replica; in scope Replica those that fail with it restart on their own account.
	if total < now.BackoffCount || now.Restarts < now.BackoffCount {
		wrong("%d incidents are charged, of %d, and all restarts add up to %d", now.BackoffCount, now.Restarts, total)
	}
	if limit := jobLimit(j); limit >= 0 && now.BackoffCount > limit {
		wrong("%d restarts, beyond the limit of %d", now.BackoffCount, limit)
	}
}

// checkTasks returns the number of restarts of all replicas.
func checkTasks(j client.Object, wrong func(string, ...any)) (total int32) {
	now, limits := statusOf(j), roleLimits(j)
	for i := range now.Tasks {
		task, sum := &now.Tasks[i], int32(0)
		for _, r := range task.Replicas {
			sum += r.RestartCount
			if limit, ok := limits[task.Type]; ok && limit >= 0 && r.RestartCount > limit {
				wrong("%d restarts of %s, beyond its limit of %d", r.RestartCount, r.Name, limit)
			}
		}
		// What was charged for replicas that were scaled away stays charged.
		if sum > task.RestartCount || sum < task.RestartCount && elasticOf(j) == nil {
			wrong("the restarts of the replicas of %s add up to %d, not to %d", task.Type, sum, task.RestartCount)
		}
		total += task.RestartCount
	}
	return total
}

func checkChange(last, j client.Object, wrong func(string, ...any)) {
	was, now := statusOf(last), statusOf(j)
	if over(last) && (now.Phase != was.Phase || !now.CompletionTime.Equal(was.CompletionTime)) {
		wrong("the end changed from %s at %v to %s at %v", was.Phase, was.CompletionTime, now.Phase, now.CompletionTime)
	}
	if now.BackoffCount < was.BackoffCount {
		wrong("backoffCount went from %d to %d", was.BackoffCount, now.BackoffCount)
	}
	for i := range was.Tasks {
		for _, r := range was.Tasks[i].Replicas {
			next := replica(j, r.Name)
			if next.Name == "" && elasticOf(j) != nil {
				continue // scaled away
			}
			if next.RestartCount < r.RestartCount || next.Attempt < r.Attempt {
				wrong("the counts of %s went from %d restarts at attempt %d to %d at %d", r.Name, r.RestartCount, r.Attempt, next.RestartCount, next.Attempt)
			}
		}
	}
}

// catchUp waits until the history holds what the API server has now: it follows by watches of its own, which may be behind
// those that the test waited with.
func (h *history) catchUp() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.s.t.Context(), patience)
	defer cancel()
	for !h.current(ctx) {
		select {
		case <-ctx.Done():
			h.t.Fatalf("the history has not caught up within %s", patience)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (h *history) current(ctx context.Context) bool {
	var pods corev1.PodList
	if err := h.s.client.List(ctx, &pods, client.InNamespace(h.s.ns)); err != nil {
		return false
	}
	jobs, err := h.s.jobsNow(ctx)
	if err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range jobs {
		past := h.jobs[j.GetName()]
		if len(past) == 0 || past[len(past)-1].GetResourceVersion() != j.GetResourceVersion() {
			return false
		}
	}
	for i := range pods.Items {
		seen := h.pods[pods.Items[i].UID]
		if seen == nil || seen.ResourceVersion != pods.Items[i].ResourceVersion {
			return false
		}
	}
	return true
}

// jobsNow reads the jobs of all kinds of the space.
func (s *space) jobsNow(ctx context.Context) ([]client.Object, error) {
	var all []client.Object
	for _, k := range kinds.All {
		list := listOf(k)
		if err := s.client.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			return all, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		}); err != nil {
			return all, err
		}
	}
	return all, nil
}

// phases lists the phases that a job went through.
func (h *history) phases(job string) []batch.JobPhase {
	h.t.Helper()
	h.catchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []batch.JobPhase
	for _, j := range h.jobs[job] {
		if p := statusOf(j).Phase; p != "" && (len(out) == 0 || out[len(out)-1] != p) {
			out = append(out, p)
		}
	}
	return out
}

// writes counts the status writes of a job.
func (h *history) writes(job string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, generation := 0, int64(0)
	for i, j := range h.jobs[job] {
		if i > 0 && j.GetGeneration() == generation {
			n++
		}
		generation = j.GetGeneration()
	}
	return n
}

// attempts lists the pods that carried a replica, oldest first.
func (h *history) attempts(replica string) []*corev1.Pod {
	h.t.Helper()
	h.catchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*corev1.Pod
	for _, p := range h.pods {
		if p.Name == replica {
			out = append(out, p)
		}
	}
	sortBy(out, func(p *corev1.Pod) string { return attemptOf(p) })
	return out
}

func attemptOf(p *corev1.Pod) string { return p.Labels[batch.LabelReplicaAttempt] }
