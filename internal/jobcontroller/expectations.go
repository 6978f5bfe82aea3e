package jobcontroller

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// expectations hold the writes of this process for a job that the caches may not show yet. Losing them costs only a few
// calls and the results of pods that others delete (docs/designs/0010-late-caches.md).
type expectations struct {
	uid types.UID
	// replicas is the number of replicas of the job. The event handlers read it too.
	replicas atomic.Int64

	// written is the job as this process last wrote it, and seenVersion is the resourceVersion of the job that the
	// cache showed then. written is nil before the first write, and once the cache shows a version other than
	// seenVersion.
	seenVersion string
	written     kinds.Object
	// writtenAt is when the status was last written. Before the first write, it is when this process first saw the job.
	writtenAt time.Time
	// contestedSince is the time of the first of the latest consecutive passes that found the job's success contested;
	// zero if the last pass did not.
	contestedSince time.Time
	// ends and lastPass are Plan.Ends and Seen.Now of the last pass.
	ends     map[types.UID]engine.EndTime
	lastPass time.Time
	// live is the view of the pods that decide last read from the API server; nil if there is none, or if cacheLag has
	// passed since the read.
	live *liveView
	// vanished holds the pods that the last live view lacked although the cache shows them as not being deleted.
	vanished waits
	// tried is true once this process has tried to write the status, whether or not the write succeeded.
	tried bool
	// delayedAt is when the current delay of a plan began; zero if no plan is delayed.
	delayedAt time.Time
	// sent is the status that was last sent to the API server, until an update of the job brings it back. The event
	// handlers read it too.
	sent atomic.Pointer[batch.JobStatus]

	// departed holds the pods whose deletion the event handler has received, until the status no longer needs them.
	departed departures
	// unheard holds the pods that the last pass neither saw nor knew to be deleted, apart from replicas in the phase
	// Deleted (see awaitsHandler).
	unheard waits

	// created holds the created pods by name, and deleted the times of deletions by UID.
	created map[string]madePod
	deleted map[types.UID]time.Time

	// serviceUntil and groupUntil are the times until which a created Service or PodGroup counts as existing although
	// the cache does not show it; zero if the cache shows it, if none was created, or if that time has passed. group is
	// the created PodGroup.
	serviceUntil, groupUntil time.Time
	group                    *scheduling.PodGroup

	// refusals holds the creations that the API server refused, see engine.Seen.Refusals.
	refusals []engine.Refusal

	// warning is the last warning about the pod with the UID warnedPod, whose start is overdue, as read at
	// eventsReadAt.
	warning      *engine.Warning
	warnedPod    types.UID
	eventsReadAt time.Time
}

// madePod is a pod that this process created. It counts as existing until the given time even if the cache does not
// show it.
type madePod struct {
	pod   *corev1.Pod
	until time.Time
}

// cacheLag is how late a cache may show what this process has written.
const cacheLag = 10 * time.Second

func newExpectations(job types.UID, now time.Time) *expectations {
	return &expectations{uid: job, writtenAt: now, created: map[string]madePod{}, deleted: map[types.UID]time.Time{}}
}

// delayLeft returns how much longer a plan may be delayed if its total delay is limited to maxDelay. The first call
// with a limit begins the delay. If maxDelay is 0, the delay ends and the result has no meaning.
func (exp *expectations) delayLeft(maxDelay time.Duration, now time.Time) time.Duration {
	if maxDelay == 0 {
		exp.delayedAt = time.Time{}
	} else if exp.delayedAt.IsZero() {
		exp.delayedAt = now
	}
	return exp.delayedAt.Add(maxDelay).Sub(now)
}

// dropRefusals forgets refused creations if the plan creates nothing or changes the run mode.
func (exp *expectations) dropRefusals(old *batch.JobStatus, plan *engine.Plan) {
	if len(plan.Create)+len(plan.Pods) == 0 || plan.Status != nil && plan.Status.RunMode != old.RunMode && old.RunMode != "" {
		exp.refusals = nil
	}
}

// newest returns the job as this process last wrote it while the cache still shows the previous version. Otherwise it
// returns the cached job, and forgets the written one.
func (exp *expectations) newest(cached kinds.Object) kinds.Object {
	if exp.written != nil && cached.GetResourceVersion() == exp.seenVersion {
		return exp.written
	}
	exp.written = nil
	return cached
}

// merge returns the cached pods with the corrections of the live view. It adds the pods that only the live view shows
// and those that this process has created, and marks as deleted those that this process has deleted. It forgets the
// creations that the cache shows, and all expectations whose time has passed.
func (exp *expectations) merge(cached []corev1.Pod, now time.Time) []*corev1.Pod {
	if exp.live != nil && now.After(exp.live.until) {
		exp.live = nil
	}
	pods := make([]*corev1.Pod, 0, len(cached)+len(exp.created))
	for i := range cached {
		pod := &cached[i]
		if exp.live != nil {
			if pod = exp.live.correct(pod); pod == nil {
				continue
			}
		}
		delete(exp.created, pod.Name)
		pods = append(pods, exp.asDeleted(pod))
	}
	for name, made := range exp.created {
		if now.After(made.until) {
			delete(exp.created, name)
			continue
		}
		pods = append(pods, exp.asDeleted(made.pod))
	}
	for _, pod := range exp.unshown(cached, pods) {
		pods = append(pods, exp.asDeleted(pod))
	}
	for uid, at := range exp.deleted {
		if now.After(at.Add(cacheLag)) {
			delete(exp.deleted, uid)
		}
	}
	return pods
}

// unshown returns the pods of the live view that the cache has not shown yet. It leaves out pods whose deletion the
// event handler has received, and pods whose names other pods have, because they no longer exist.
func (exp *expectations) unshown(cached []corev1.Pod, pods []*corev1.Pod) []*corev1.Pod {
	if exp.live == nil || len(exp.live.unshown) == 0 {
		return nil
	}
	for i := range cached {
		delete(exp.live.unshown, cached[i].UID)
	}
	for _, pod := range pods {
		if uid, known := exp.live.names[pod.Name]; known {
			delete(exp.live.unshown, uid)
		}
	}
	var unshown []*corev1.Pod
	for uid, pod := range exp.live.unshown {
		if exp.departed.isGone(uid) {
			delete(exp.live.unshown, uid)
		} else {
			unshown = append(unshown, pod)
		}
	}
	return unshown
}

// lateCreations returns the names of the pods that this process created, or last confirmed, more than cacheLag ago,
// unless the cache has a pod of that name.
func (exp *expectations) lateCreations(cached []corev1.Pod, now time.Time) []string {
	late := map[string]bool{}
	for name, made := range exp.created {
		if now.After(made.until) {
			late[name] = true
		}
	}
	for i := 0; i < len(cached) && len(late) > 0; i++ {
		delete(late, cached[i].Name)
	}
	return slices.Collect(maps.Keys(late))
}

// asDeleted returns a copy with a deletion timestamp if this process has deleted the pod and the cache does not show
// the deletion yet. Otherwise it returns the pod itself.
func (exp *expectations) asDeleted(pod *corev1.Pod) *corev1.Pod {
	at, ok := exp.deleted[pod.UID]
	if !ok || pod.DeletionTimestamp != nil {
		return pod
	}
	marked := pod.DeepCopy()
	marked.DeletionTimestamp = &metav1.Time{Time: at}
	return marked
}

// forgetAfter returns the time until this process next stops assuming that an object exists which it created, or saw in
// the live view, and which no cache shows; zero if there is none. The job then needs a pass, because no event reports
// an object that was deleted before any cache saw it.
func (exp *expectations) forgetAfter(now time.Time) time.Duration {
	next := time.Duration(0)
	note := func(until time.Time) {
		if !until.IsZero() {
			next = sooner(next, max(until.Sub(now), time.Millisecond))
		}
	}
	note(exp.serviceUntil)
	note(exp.groupUntil)
	for _, made := range exp.created {
		note(made.until)
	}
	if exp.live != nil && len(exp.live.unshown) > 0 {
		note(exp.live.until)
	}
	return next
}

// expectationStore holds the expectations of every job.
type expectationStore struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	jobs  map[types.NamespacedName]*expectations
}

func newExpectationStore(c clock.PassiveClock) *expectationStore {
	return &expectationStore{clock: c, jobs: map[types.NamespacedName]*expectations{}}
}

// of returns the expectations of a job. A job with the same name and another UID starts with none.
func (s *expectationStore) of(key types.NamespacedName, uid types.UID) *expectations {
	s.mu.Lock()
	defer s.mu.Unlock()
	exp := s.jobs[key]
	if exp == nil || exp.uid != uid {
		exp = newExpectations(uid, s.clock.Now())
		s.jobs[key] = exp
	}
	return exp
}

// get returns the expectations of a job; nil if there are none.
func (s *expectationStore) get(key types.NamespacedName) *expectations {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[key]
}

// forget drops the expectations of a job that the cache does not have. If no pass has seen the job, the cache of jobs
// may be behind the cache of pods: forget then keeps for cacheLag what the handlers have received, and returns the
// remaining time. It returns zero if it has dropped the expectations.
func (s *expectationStore) forget(key types.NamespacedName) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if exp := s.jobs[key]; exp != nil && exp.lastPass.IsZero() {
		if left := cacheLag - s.clock.Since(exp.writtenAt); left > 0 {
			return left
		}
	}
	delete(s.jobs, key)
	return 0
}

// noteSuccess records that a pod of a job succeeded before it was deleted, unless another job has the name. The caller
// must enqueue the job, as for departuresOf.
func (s *expectationStore) noteSuccess(key types.NamespacedName, job types.UID, pod *corev1.Pod) {
	if d := s.departuresOf(key, job); d != nil {
		d.addSuccess(pod)
	}
}

// noteGone records that a pod of a job has been deleted, unless another job has the name. The caller must enqueue the
// job, as for departuresOf.
func (s *expectationStore) noteGone(key types.NamespacedName, job, pod types.UID) {
	if d := s.departuresOf(key, job); d != nil {
		d.addGone(pod)
	}
}

// departuresOf returns the departures of a job; nil if another job has the name. It adds an entry if this process does
// not know the job yet. The caller must enqueue the job, so that a pass removes the entry if the job no longer exists.
func (s *expectationStore) departuresOf(key types.NamespacedName, job types.UID) *departures {
	s.mu.Lock()
	defer s.mu.Unlock()
	exp := s.jobs[key]
	if exp == nil {
		exp = newExpectations(job, s.clock.Now())
		s.jobs[key] = exp
	}
	if exp.uid != job {
		return nil
	}
	return &exp.departed
}

// size returns the number of replicas of a job, or 0 if it is unknown.
func (s *expectationStore) size(key types.NamespacedName) int64 {
	if exp := s.get(key); exp != nil {
		return exp.replicas.Load()
	}
	return 0
}

// isOwnWrite reports whether the status of an updated job equals the status that this process sent last. It returns
// true at most once for each write.
func (s *expectationStore) isOwnWrite(key types.NamespacedName, status *batch.JobStatus) bool {
	exp := s.get(key)
	if exp == nil {
		return false
	}
	sent := exp.sent.Load()
	return sent != nil && equality.Semantic.DeepEqual(sent, status) && exp.sent.CompareAndSwap(sent, nil)
}
