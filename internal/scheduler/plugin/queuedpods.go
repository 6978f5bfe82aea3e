package plugin

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// queuedPods are the pods that the scheduler's queue has been given, which happens at another time than the planner
// hears of them. A gang is planned only when all of its pods have come here, for only then can they be handed out. It
// belongs to the queue, which several goroutines use, and has a lock of its own.
type queuedPods struct {
	mu sync.Mutex
	// pods are nil once they are in the scheduler's queue.
	pods map[types.UID]*corev1.Pod
	// taken is the pod that is being taken out of that queue.
	taken types.UID
}

// keep keeps a new pod, or the new version of one that is kept. It returns false for one that is in the scheduler's
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

// release gives up a pod that is kept, since it goes into the scheduler's queue; nil if it is not kept.
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

// all tells whether all pods of a group that wait have arrived.
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

// setTaken notes which pod is being taken out of the scheduler's queue; none if uid is empty.
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
