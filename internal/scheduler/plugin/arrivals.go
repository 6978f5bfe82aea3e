package plugin

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// arrivals are the pods that have come to the scheduler's queue, which hears of a pod at another time than the planner does. A
// gang is planned only when the queue has all of its pods, for only then can it hand them out.
type arrivals struct {
	mu   sync.Mutex
	pods map[types.UID]bool
}

// add tells whether the pod is new.
func (a *arrivals) add(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods[uid] {
		return false
	}
	a.pods[uid] = true
	return true
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
		if p.Node == "" && !p.Ending && !a.pods[types.UID(p.UID)] {
			return false
		}
	}
	return true
}
