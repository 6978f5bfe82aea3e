package jobcontroller

import (
	"iter"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// departures holds what the event handlers have received about deleted pods, by UID. It has a lock, because the
// handlers run concurrently with the passes.
type departures struct {
	mu sync.Mutex
	// succeeded holds the pods that were observed to succeed before they were deleted.
	succeeded map[types.UID]*corev1.Pod
	// gone holds the pods whose deletion the handlers have received.
	gone map[types.UID]bool
	// unneeded lists the pods that the last pass did not need. The next pass may need them if the last pass did not see
	// the current status.
	unneeded []types.UID
}

func (s *departures) addSuccess(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.succeeded == nil {
		s.succeeded = map[types.UID]*corev1.Pod{}
	}
	s.succeeded[pod.UID] = pod
}

func (s *departures) addGone(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == nil {
		s.gone = map[types.UID]bool{}
	}
	s.gone[pod] = true
}

// isGone reports whether the handlers have received the deletion of a pod.
func (s *departures) isGone(pod types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[pod]
}

// unheard returns the pods in the status that have not ended, that are not among the seen pods, and whose deletion the
// handlers have not received. ending holds the pods of replicas in the phase Deleted, and living the others. A cache is
// ahead of its handlers for a moment, and only the handlers know whether a pod succeeded before it was deleted. The
// handlers never receive deletions from before this process began to watch.
func (s *departures) unheard(status *batch.JobStatus, seen []*corev1.Pod) (living, ending []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := make(map[types.UID]bool, len(seen))
	for _, pod := range seen {
		present[pod.UID] = true
	}
	for i := range status.Tasks {
		for k := range status.Tasks[i].Replicas {
			r := &status.Tasks[i].Replicas[k]
			uid := types.UID(r.UID)
			switch {
			case uid == "" || hasEnded(r) || present[uid] || s.gone[uid]:
			case r.Phase == batch.ReplicaDeleted:
				ending = append(ending, uid)
			default:
				living = append(living, uid)
			}
		}
	}
	return living, ending
}

// waits holds, by pod, the time since which passes have been waiting for the watch to show the end of the pod.
type waits map[types.UID]time.Time

// still reports whether a pass has to wait for one of these pods, each for up to vanishedWait. It forgets other pods.
func (w *waits) still(pods []types.UID, now time.Time) bool {
	if len(pods) == 0 {
		*w = nil
		return false
	}
	waiting, next := false, waits{}
	for _, pod := range pods {
		since, known := (*w)[pod]
		if !known {
			since = now
		}
		next[pod] = since
		waiting = waiting || now.Before(since.Add(vanishedWait))
	}
	*w = next
	return waiting
}

func hasEnded(r *batch.ReplicaStatus) bool {
	return r.Phase == batch.ReplicaSucceeded || r.Phase == batch.ReplicaFailed
}

// open returns, by UID, the succeeded pods that a pass may need: pods that were seen, and pods of replicas whose end
// the status does not record. It lists all other pods in unneeded, for prune. The result is nil if there are no
// departures.
func (s *departures) open(status *batch.JobStatus, seen []*corev1.Pod) map[types.UID]*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.succeeded)+len(s.gone) == 0 {
		return nil
	}
	open, needed := map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
	need := func(uid types.UID) {
		needed[uid] = true
		if pod := s.succeeded[uid]; pod != nil {
			open[uid] = pod
		}
	}
	for i := range status.Tasks {
		for k := range status.Tasks[i].Replicas {
			r := &status.Tasks[i].Replicas[k]
			if !hasEnded(r) {
				need(types.UID(r.UID))
			}
		}
	}
	for _, pod := range seen {
		need(pod.UID)
	}
	s.unneeded = nil
	for _, uids := range []iter.Seq[types.UID]{maps.Keys(s.succeeded), maps.Keys(s.gone)} {
		for uid := range uids {
			if !needed[uid] {
				s.unneeded = append(s.unneeded, uid)
			}
		}
	}
	return open
}

// prune forgets the pods that the last pass did not need. It may be called only if that pass saw the current status.
func (s *departures) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range s.unneeded {
		delete(s.succeeded, uid)
		delete(s.gone, uid)
	}
	s.unneeded = nil
}
