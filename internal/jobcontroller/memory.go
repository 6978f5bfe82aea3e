package jobcontroller

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
)

// memory bridges the time until the caches show what this process has just written. Losing it costs a few calls, never a
// wrong result.
type memory struct {
	uid types.UID
	// replicas is the size of the job, read by the event handlers too.
	replicas atomic.Int64

	// seenVersion is the resourceVersion of the cached object that written was made from.
	seenVersion string
	written     kinds.Object
	// writtenAt is the time of the last status write or, before the first one, of the first sight of the job.
	writtenAt time.Time
	// contestedSince is the time of the first pass in a row that found the job's success contested; zero where the last did not.
	contestedSince time.Time
	// live is the last view of the pods that the API server itself gave; nil once the cache shows as much.
	live *liveView
	// tried is true once this process has tried to write the status, whether or not it knows of a success.
	tried bool
	// putOffAt is when a plan was first put off, since one was last carried out or there was nothing to put off.
	putOffAt time.Time
	// echo is the status last written, until it comes back as an update of the job. The event handlers read it too.
	echo atomic.Pointer[batch.JobStatus]

	// succeeded holds pods that were watched to succeed before they were deleted, until the status says so.
	succeeded successes

	// created holds pods by name, deleted the time of deletion by UID.
	created map[string]madePod
	deleted map[types.UID]time.Time

	serviceUntil, groupUntil time.Time
	group                    *scheduling.PodGroup

	refusals []engine.Refusal

	// warning is what lookedAt brought to light about a pod that is held up.
	warning  *engine.Warning
	lookedAt time.Time
}

type madePod struct {
	pod   *corev1.Pod
	until time.Time
}

// cacheLag is the time within which a cache shows what was written.
const cacheLag = 10 * time.Second

// waits is how much longer a plan may be put off that may be put off for so long in all.
func (m *memory) waits(canWait time.Duration, now time.Time) time.Duration {
	if canWait == 0 {
		m.putOffAt = time.Time{}
	} else if m.putOffAt.IsZero() {
		m.putOffAt = now
	}
	return m.putOffAt.Add(canWait).Sub(now)
}

// dropRefusals forgets what was refused once nothing is to be created any more, or something else is, in another run mode.
func (m *memory) dropRefusals(old *batch.JobStatus, plan *engine.Plan) {
	if len(plan.Create)+len(plan.Pods) == 0 || plan.Status != nil && plan.Status.RunMode != old.RunMode && old.RunMode != "" {
		m.refusals = nil
	}
}

// newest is the job as last written by this process, as long as the cache still shows the one before.
func (m *memory) newest(cached kinds.Object) kinds.Object {
	if m.written != nil && cached.GetResourceVersion() == m.seenVersion {
		return m.written
	}
	m.written = nil
	return cached
}

// merge adds pods that this process has created, marks those that it has deleted and corrects what was read from the API server
// itself, where the cache is behind.
func (m *memory) merge(cached []corev1.Pod, now time.Time) []*corev1.Pod {
	if m.live != nil && now.After(m.live.until) {
		m.live = nil
	}
	pods := make([]*corev1.Pod, 0, len(cached)+len(m.created))
	for i := range cached {
		pod := &cached[i]
		if m.live != nil {
			if pod = m.live.correct(pod); pod == nil {
				continue
			}
		}
		delete(m.created, pod.Name)
		pods = append(pods, m.asDeleted(pod))
	}
	for name, made := range m.created {
		if now.After(made.until) {
			delete(m.created, name)
			continue
		}
		pods = append(pods, m.asDeleted(made.pod))
	}
	for uid, at := range m.deleted {
		if now.After(at.Add(cacheLag)) {
			delete(m.deleted, uid)
		}
	}
	return pods
}

// asDeleted marks a pod that this process has deleted and that the cache does not show so yet.
func (m *memory) asDeleted(pod *corev1.Pod) *corev1.Pod {
	at, ok := m.deleted[pod.UID]
	if !ok || pod.DeletionTimestamp != nil {
		return pod
	}
	marked := pod.DeepCopy()
	marked.DeletionTimestamp = &metav1.Time{Time: at}
	return marked
}

// forgetAfter is the time until a creation that the caches do not show stops counting; 0 where there is none. Whoever deletes
// such an object may have done so before any cache saw it: then no event tells of it.
func (m *memory) forgetAfter(now time.Time) time.Duration {
	next := time.Duration(0)
	note := func(until time.Time) {
		if !until.IsZero() {
			next = sooner(next, max(until.Sub(now), time.Millisecond))
		}
	}
	note(m.serviceUntil)
	note(m.groupUntil)
	for _, made := range m.created {
		note(made.until)
	}
	return next
}

// successes holds pods by UID. The event handlers add to it.
type successes struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
}

func (s *successes) add(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = map[types.UID]*corev1.Pod{}
	}
	s.pods[pod.UID] = pod
}

// open returns those that a pass may still need: of pods that are still there, and of replicas whose end the status does not know.
// It forgets the others.
func (s *successes) open(status *batch.JobStatus, seen []*corev1.Pod) map[types.UID]*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pods) == 0 {
		return nil
	}
	open := map[types.UID]*corev1.Pod{}
	keep := func(uid types.UID) {
		if pod := s.pods[uid]; pod != nil {
			open[uid] = pod
		}
	}
	for i := range status.Tasks {
		for k := range status.Tasks[i].Replicas {
			r := &status.Tasks[i].Replicas[k]
			if r.Phase != batch.ReplicaSucceeded && r.Phase != batch.ReplicaFailed {
				keep(types.UID(r.UID))
			}
		}
	}
	for _, pod := range seen {
		keep(pod.UID)
	}
	s.pods = maps.Clone(open)
	return open
}

// memories holds the memory of every job.
type memories struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memory
}

func newMemories() *memories {
	return &memories{all: map[types.NamespacedName]*memory{}}
}

// of is the memory of a job; a job of the same name but another UID starts with an empty one.
func (s *memories) of(key types.NamespacedName, uid types.UID) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.all[key]
	if m == nil || m.uid != uid {
		m = &memory{uid: uid, writtenAt: time.Now(), created: map[string]madePod{}, deleted: map[types.UID]time.Time{}}
		s.all[key] = m
	}
	return m
}

func (s *memories) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

// noteSuccess notes that a pod of a job has succeeded and was deleted only then.
func (s *memories) noteSuccess(key types.NamespacedName, job types.UID, pod *corev1.Pod) {
	s.mu.Lock()
	m := s.all[key]
	s.mu.Unlock()
	if m != nil && m.uid == job {
		m.succeeded.add(pod)
	}
}

// size is the number of replicas of a job, or 0 where nothing is known yet.
func (s *memories) size(key types.NamespacedName) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.all[key]; m != nil {
		return m.replicas.Load()
	}
	return 0
}

// isEcho tells whether an update of a job brings nothing but the status that this process wrote last.
func (s *memories) isEcho(key types.NamespacedName, status *batch.JobStatus) bool {
	s.mu.Lock()
	m := s.all[key]
	s.mu.Unlock()
	if m == nil {
		return false
	}
	written := m.echo.Load()
	return written != nil && equality.Semantic.DeepEqual(written, status) && m.echo.CompareAndSwap(written, nil)
}
