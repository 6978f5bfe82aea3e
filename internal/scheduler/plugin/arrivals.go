package plugin

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// arrivals are the pods that the scheduler has heard of, which it does at another time than the planner. A gang is planned only when
// all of its pods have come here, for only then can they be handed out.
type arrivals struct {
	mu sync.Mutex
	// pods are nil once they are in the scheduler's queue.
	pods map[types.UID]*corev1.Pod
}

// hold keeps a new pod, or the new version of one that is kept. It returns false for one that is in the queue.
func (a *arrivals) hold(pod *corev1.Pod) (held, fresh bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, known := a.pods[pod.UID]
	if known && old == nil {
		return false, false
	}
	a.pods[pod.UID] = pod
	return true, !known
}

// release gives up a pod that is kept, since it goes into the queue; nil if it is not kept.
func (a *arrivals) release(uid types.UID) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods[uid]
	if pod != nil {
		a.pods[uid] = nil
	}
	return pod
}

func (a *arrivals) remove(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, uid)
}

// all tells whether all pods of a group that wait have arrived.
func (a *arrivals) all(g *group) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range g.core.Pods {
		if p.Node != "" || p.Ending {
			continue
		}
		if _, ok := a.pods[types.UID(p.UID)]; !ok {
			return false
		}
	}
	return true
}
