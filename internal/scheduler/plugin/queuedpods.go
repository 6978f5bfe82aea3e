package plugin

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// queuedPods are the pods that the scheduler's queue has received. The planner's informers may see them at another
// time. A gang is planned only when all of its pods are here, because only then can they be handed out. Several
// goroutines use the queue, so it has a lock.
type queuedPods struct {
	mu sync.Mutex
	// pods has a nil value for pods that are in the scheduler's queue.
	pods map[types.UID]*corev1.Pod
	// taken is the pod that is being taken out of the scheduler's queue.
	taken types.UID
}

// keep stores a new pod, or a new version of a stored one. It returns false for kept if the pod is in the scheduler's
// queue.
func (q *queuedPods) keep(pod *corev1.Pod) (kept, fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old, known := q.pods[pod.UID]
	if known && old == nil {
		return false, false
	}
	q.pods[pod.UID] = pod
	return true, !known
}

// release removes and returns a stored pod that goes into the scheduler's queue; nil if it is not stored.
func (q *queuedPods) release(uid types.UID) *corev1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	pod := q.pods[uid]
	if pod != nil {
		q.pods[uid] = nil
	}
	return pod
}

func (q *queuedPods) remove(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pods, uid)
}

// all reports whether all waiting pods of a group are here.
func (q *queuedPods) all(g *group) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range g.core.Pods {
		if p.Node != "" || p.Ending {
			continue
		}
		if _, ok := q.pods[types.UID(p.UID)]; !ok {
			return false
		}
	}
	return true
}

// setTaken sets the pod that is being taken out of the scheduler's queue; empty for none.
func (q *queuedPods) setTaken(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = uid
}

func (q *queuedPods) isTaken(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken == uid
}
