// Package history watches the jobs and pods of a namespace. It records each version of a job and the last version of
// each pod, and checks each version of a job against the invariants of every status. A test that records a history
// therefore tests these invariants too. Start reading at Record.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/test/kit/jobs"
	"tensorstack.dev/batch/test/kit/namespace"
	"tensorstack.dev/batch/test/kit/watch"
)

// History is the record of a namespace.
type History struct {
	s *namespace.Test

	mu   sync.Mutex
	jobs map[string][]client.Object // all versions, by name
	pods map[types.UID]*corev1.Pod  // the last version of each pod
	seen map[string]time.Time       // when an event was first seen; see FirstSeen
}

// Record records the namespace of a test until the test ends.
func Record(s *namespace.Test) *History {
	h := &History{s: s, jobs: map[string][]client.Object{}, pods: map[types.UID]*corev1.Pod{}, seen: map[string]time.Time{}}
	for _, k := range kinds.All {
		s.Watch(jobs.ListOf(k), func(objects []client.Object) bool { return h.seeJobs(k, objects) })
	}
	s.Watch(&corev1.PodList{}, h.seePods)
	return h
}

// see records the time of an event when it is first seen.
func (h *History) see(what string) {
	if _, ok := h.seen[what]; !ok {
		h.seen[what] = time.Now()
	}
}

// AwaitSeen waits until an event has been seen. FirstSeen lists the events.
func (h *History) AwaitSeen(what string) {
	h.s.Helper()
	h.s.Await(what+" is seen", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, ok := h.seen[what]; !ok {
			return errors.New("it has not been")
		}
		return nil
	})
}

// FirstSeen returns the time at which an event was first seen, and ends the test if it has not been seen. what is the
// UID of a pod for the first version of the pod, JOB/PHASE for a phase of a job, JOB/pods for the first pod of a job,
// or JOB/gone for the deletion of a job.
func (h *History) FirstSeen(what string) time.Time {
	h.s.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.seen[what]
	if !ok {
		h.s.Fatalf("%s has not been observed", what)
	}
	return at
}

// seeJobs records the objects of one kind of job.
func (h *History) seeJobs(kind kinds.Kind, objects []client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[string]bool{}
	for _, j := range objects {
		there[j.GetName()] = true
		h.see(j.GetName() + "/" + string(jobs.StatusOf(j).Phase))
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
		if !there[name] && jobs.KindOf(past[0]).Name == kind.Name {
			h.see(name + "/gone")
		}
	}
	return false
}

func (h *History) seePods(objects []client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range watch.Typed[*corev1.Pod](objects) {
		h.pods[p.UID] = p
		h.see(string(p.UID))
		h.see(p.Labels[batch.LabelJobName] + "/pods")
	}
	return false
}

// check checks the version j of a job against the invariants of every status, and its changes since the version last
// against the invariants of changes. last is nil for the first version.
func (h *History) check(last, j client.Object) {
	now := jobs.StatusOf(j)
	if len(now.Conditions) == 0 && now.Phase == "" {
		return // no status has been written yet
	}
	wrong := func(format string, args ...any) {
		h.s.Errorf("job %s at version %s: "+format, append([]any{j.GetName(), j.GetResourceVersion()}, args...)...)
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
		if c := jobs.Condition(j, t); c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() {
			wrong("condition %s lacks something: %+v", t, c)
		}
	}
	now := jobs.StatusOf(j)
	if len(now.Conditions) != len(all) {
		wrong("%d conditions, want %d", len(now.Conditions), len(all))
	}
	completed, failed := jobs.IsTrue(j, batch.JobCompleted), jobs.IsTrue(j, batch.JobFailedCondition)
	finished := completed || failed
	if completed && failed || finished && jobs.IsTrue(j, batch.JobRunningCondition) {
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
	if jobs.Condition(j, batch.JobInitialized).Status != metav1.ConditionTrue {
		return // a job that was not accepted has no counts
	}
	now, job := jobs.StatusOf(j), jobs.KindOf(j).Convert(j)
	want := int32(0)
	for i := range job.Roles {
		want += int32(job.Roles[i].Replicas)
	}
	if job.Elastic != nil {
		want = now.Replicas // the spec may be newer
	}
	a := now.Aggregate
	if sum := a.Creating + a.Pending + a.Running + a.Succeeded + a.Failed + a.Unknown + a.Deleted; sum != want {
		wrong("the aggregate %+v adds up to %d, want %d", a, sum, want)
	}
	total := checkTasks(now, job, wrong)
	// Each charged incident is also charged to the replica that began it. In scope Replica, other replicas that fail
	// during the incident are charged too, so the sum may be larger.
	if total < now.BackoffCount || now.Restarts < now.BackoffCount {
		wrong("%d incidents are charged, of %d, and all restarts add up to %d", now.BackoffCount, now.Restarts, total)
	}
	if job.RestartLimit != nil && now.BackoffCount > *job.RestartLimit {
		wrong("%d restarts, beyond the limit of %d", now.BackoffCount, *job.RestartLimit)
	}
}

// checkTasks checks the restart counts of all roles and replicas, and returns the sum of the roles' counts.
func checkTasks(now *batch.JobStatus, job *engine.Job, wrong func(string, ...any)) (total int32) {
	limits := map[string]*int32{}
	for i := range job.Roles {
		limits[job.Roles[i].Type] = job.Roles[i].Restart.Limit
	}
	for i := range now.Tasks {
		task, sum := &now.Tasks[i], int32(0)
		for _, r := range task.Replicas {
			sum += r.RestartCount
			if limit := limits[task.Type]; limit != nil && r.RestartCount > *limit {
				wrong("%d restarts of %s, beyond its limit of %d", r.RestartCount, r.Name, *limit)
			}
		}
		// The count of the role includes the restarts of replicas that were removed by scaling.
		if sum > task.RestartCount || sum < task.RestartCount && job.Elastic == nil {
			wrong("the restarts of the replicas of %s add up to %d, not to %d", task.Type, sum, task.RestartCount)
		}
		total += task.RestartCount
	}
	return total
}

func checkChange(last, j client.Object, wrong func(string, ...any)) {
	was, now := jobs.StatusOf(last), jobs.StatusOf(j)
	elastic := jobs.KindOf(j).Convert(j).Elastic != nil
	if jobs.Over(last) && (now.Phase != was.Phase || !now.CompletionTime.Equal(was.CompletionTime)) {
		wrong("the end changed from %s at %v to %s at %v", was.Phase, was.CompletionTime, now.Phase, now.CompletionTime)
	}
	if now.BackoffCount < was.BackoffCount {
		wrong("backoffCount went from %d to %d", was.BackoffCount, now.BackoffCount)
	}
	for i := range was.Tasks {
		for _, r := range was.Tasks[i].Replicas {
			next := jobs.Replica(j, r.Name)
			if next.Name == "" && elastic {
				continue // a scaling removed it
			}
			if next.RestartCount < r.RestartCount || next.Attempt < r.Attempt {
				wrong("the counts of %s went from %d restarts at attempt %d to %d at %d", r.Name, r.RestartCount, r.Attempt, next.RestartCount, next.Attempt)
			}
		}
	}
}

// CatchUp waits until the history contains the latest versions of all existing jobs and pods. The history's watches may
// lag behind the watches with which the test waited.
func (h *History) CatchUp() {
	h.s.Helper()
	h.s.Await("the history has caught up", func() error { return h.current(h.s.Context()) })
}

// current returns an error if the history lacks the latest version of a job or pod.
func (h *History) current(ctx context.Context) error {
	var pods corev1.PodList
	if err := h.s.Client.List(ctx, &pods, client.InNamespace(h.s.Namespace)); err != nil {
		return err
	}
	all, err := h.s.Jobs(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range all {
		past := h.jobs[j.GetName()]
		if len(past) == 0 || past[len(past)-1].GetResourceVersion() != j.GetResourceVersion() {
			return fmt.Errorf("it lacks the latest version of job %s", j.GetName())
		}
	}
	for i := range pods.Items {
		seen := h.pods[pods.Items[i].UID]
		if seen == nil || seen.ResourceVersion != pods.Items[i].ResourceVersion {
			return fmt.Errorf("it lacks the latest version of pod %s", pods.Items[i].Name)
		}
	}
	return nil
}

// Phases returns the phases through which a job has gone, in order.
func (h *History) Phases(job string) []batch.JobPhase {
	h.s.Helper()
	h.CatchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []batch.JobPhase
	for _, j := range h.jobs[job] {
		if p := jobs.StatusOf(j).Phase; p != "" && (len(out) == 0 || out[len(out)-1] != p) {
			out = append(out, p)
		}
	}
	return out
}

// FirstIn returns the first version of a job that was in a phase, or nil if none was.
func (h *History) FirstIn(job string, phase batch.JobPhase) client.Object {
	h.s.Helper()
	h.CatchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range h.jobs[job] {
		if jobs.StatusOf(j).Phase == phase {
			return j
		}
	}
	return nil
}

// Writes returns the number of status writes of a job that have been recorded. It counts the versions whose generation
// equals that of the version before, and thus also changes of metadata.
func (h *History) Writes(job string) int {
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

// Attempts returns the pods of a replica, including deleted ones, sorted by the number of the attempt.
func (h *History) Attempts(replica string) []*corev1.Pod {
	h.s.Helper()
	h.CatchUp()
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*corev1.Pod
	for _, p := range h.pods {
		if p.Name == replica {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(attempt(a), attempt(b)) })
	return out
}

// attempt returns the number of a pod's attempt, or 0 if the pod has no valid label.
func attempt(p *corev1.Pod) int {
	n, _ := strconv.Atoi(AttemptOf(p))
	return n
}

// AttemptOf returns the number of a pod's attempt as the pod's label contains it.
func AttemptOf(p *corev1.Pod) string { return p.Labels[batch.LabelReplicaAttempt] }
