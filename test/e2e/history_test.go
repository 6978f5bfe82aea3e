package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// history records every version of the jobs and pods of a namespace, and holds each version of a job against what is true
// of every status. So each test of the package is a test of these invariants too.
type history struct {
	s *space
	t testing.TB

	mu   sync.Mutex
	jobs map[string][]*batch.GenericJob // by name, without versions whose status is the same
	pods map[types.UID]*corev1.Pod      // as last seen
}

// record follows the namespace until the test ends.
func (s *space) record() *history {
	h := &history{s: s, t: s.t, jobs: map[string][]*batch.GenericJob{}, pods: map[types.UID]*corev1.Pod{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = follow(ctx, s.client, &batch.GenericJobList{}, h.seeJobs, client.InNamespace(s.ns)) }) // ends with ctx
	wg.Go(func() { _ = follow(ctx, s.client, &corev1.PodList{}, h.seePods, client.InNamespace(s.ns)) })
	s.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return h
}

func (h *history) seeJobs(objects []client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range typed[*batch.GenericJob](objects) {
		past := h.jobs[j.Name]
		if len(past) > 0 && past[len(past)-1].ResourceVersion == j.ResourceVersion {
			continue
		}
		var last *batch.GenericJob
		if len(past) > 0 && past[len(past)-1].UID == j.UID {
			last = past[len(past)-1]
		}
		h.check(last, j)
		h.jobs[j.Name] = append(past, j)
	}
	return false
}

func (h *history) seePods(objects []client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range typed[*corev1.Pod](objects) {
		h.pods[p.UID] = p
	}
	return false
}

// check holds a version of a job against the invariants of every status and of every change of one.
func (h *history) check(last, j *batch.GenericJob) {
	if len(j.Status.Conditions) == 0 && j.Status.Phase == "" {
		return // nothing has been written yet
	}
	wrong := func(format string, args ...any) {
		h.t.Errorf("job %s at version %s: "+format, append([]any{j.Name, j.ResourceVersion}, args...)...)
	}
	checkConditions(j, wrong)
	checkCounts(j, wrong)
	if last != nil {
		checkChange(last, j, wrong)
	}
}

func checkConditions(j *batch.GenericJob, wrong func(string, ...any)) {
	all := []batch.JobConditionType{batch.JobInitialized, batch.JobRunningCondition, batch.JobReplicaFailure, batch.JobCompleted,
		batch.JobFailedCondition, batch.JobPausedCondition}
	for _, t := range all {
		if c := condition(j, t); c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
			wrong("condition %s lacks something: %+v", t, c)
		}
	}
	if len(j.Status.Conditions) != len(all) {
		wrong("%d conditions, want %d", len(j.Status.Conditions), len(all))
	}
	completed, failed := isTrue(j, batch.JobCompleted), isTrue(j, batch.JobFailedCondition)
	finished := completed || failed
	if completed && failed || finished && isTrue(j, batch.JobRunningCondition) {
		wrong("the conditions contradict each other: %+v", j.Status.Conditions)
	}
	if completed != (j.Status.Phase == batch.JobSucceeded) || failed != (j.Status.Phase == batch.JobFailed) {
		wrong("phase %s and conditions disagree: %+v", j.Status.Phase, j.Status.Conditions)
	}
	if finished != (j.Status.CompletionTime != nil) {
		wrong("phase %s and completion time %v disagree", j.Status.Phase, j.Status.CompletionTime)
	}
}

func checkCounts(j *batch.GenericJob, wrong func(string, ...any)) {
	if condition(j, batch.JobInitialized).Status != metav1.ConditionTrue {
		return // nothing is counted of a job that was not accepted
	}
	want := int32(0)
	for _, r := range j.Spec.ReplicaSpecs {
		want += *r.Replicas
	}
	a := j.Status.Aggregate
	if sum := a.Creating + a.Pending + a.Running + a.Succeeded + a.Failed + a.Unknown + a.Deleted; sum != want {
		wrong("the aggregate %+v adds up to %d, want %d", a, sum, want)
	}
	total := int32(0)
	for i := range j.Status.Tasks {
		task, sum := &j.Status.Tasks[i], int32(0)
		for _, r := range task.Replicas {
			sum += r.RestartCount
			if limit := limitOf(j, task.Type); limit >= 0 && r.RestartCount > limit {
				wrong("%d restarts of %s, beyond its limit of %d", r.RestartCount, r.Name, limit)
			}
		}
		if sum != task.RestartCount {
			wrong("the restarts of the replicas of %s add up to %d, not to %d", task.Type, sum, task.RestartCount)
		}
		total += sum
	}
	if total != j.Status.BackoffCount {
		wrong("all restarts add up to %d, not to %d", total, j.Status.BackoffCount)
	}
}

// limitOf is the number of restarts that each replica of a role has; -1 stands for no bound.
func limitOf(j *batch.GenericJob, role string) int32 {
	for i := range j.Spec.ReplicaSpecs {
		r := &j.Spec.ReplicaSpecs[i]
		switch {
		case r.Type != role:
		case r.RestartPolicy == nil:
			return 0
		case r.RestartPolicy.Limit != nil:
			return *r.RestartPolicy.Limit
		case r.RestartPolicy.Policy == batch.RestartAlways:
			return -1
		default:
			return 0
		}
	}
	return 0
}

func checkChange(last, j *batch.GenericJob, wrong func(string, ...any)) {
	if over(last) && (j.Status.Phase != last.Status.Phase || !j.Status.CompletionTime.Equal(last.Status.CompletionTime)) {
		wrong("the end changed from %s at %v to %s at %v", last.Status.Phase, last.Status.CompletionTime, j.Status.Phase, j.Status.CompletionTime)
	}
	for i := range last.Status.Tasks {
		for _, r := range last.Status.Tasks[i].Replicas {
			now := replica(j, r.Name)
			if now.RestartCount < r.RestartCount || now.Attempt < r.Attempt {
				wrong("the counts of %s went from %d restarts at attempt %d to %d at %d", r.Name, r.RestartCount, r.Attempt, now.RestartCount, now.Attempt)
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
	var jobs batch.GenericJobList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&jobs, &pods} {
		if err := h.s.client.List(ctx, list, client.InNamespace(h.s.ns)); err != nil {
			return false
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range jobs.Items {
		past := h.jobs[jobs.Items[i].Name]
		if len(past) == 0 || past[len(past)-1].ResourceVersion != jobs.Items[i].ResourceVersion {
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

// phases lists the phases that a job went through.
func (h *history) phases(job string) []batch.JobPhase {
	h.t.Helper()
	h.catchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []batch.JobPhase
	for _, j := range h.jobs[job] {
		if p := j.Status.Phase; p != "" && (len(out) == 0 || out[len(out)-1] != p) {
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
		if i > 0 && j.Generation == generation {
			n++
		}
		generation = j.Generation
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
