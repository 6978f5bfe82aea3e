package plugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// plannedKey marks the state of a pod that the planner places, as opposed to that of a scheduling cycle.
const plannedKey fwk.StateKey = Name + "/planned"

type plannedMark struct{}

// Clone implements fwk.StateData.
func (plannedMark) Clone() fwk.StateData { return plannedMark{} }

func isPlanned(state fwk.CycleState) bool {
	_, err := state.Read(plannedKey)
	return err == nil
}

// reserves tells whether a pod needs more than room on its node, which only one pod can have.
func reserves(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for i := range pod.Spec.Volumes {
		if bindsToNodes(pod.Spec.Volumes[i]) {
			return true
		}
	}
	return false
}

// reserve has the profile's plugins set aside the volumes and devices of a pod that is assumed, so that the next pod of a plan
// does not count on them.
func (n *nodes) reserve(state fwk.CycleState, uid types.UID) *fwk.Status {
	pod := n.assumed[uid]
	if pod == nil || !reserves(pod) {
		return nil
	}
	state.Write(plannedKey, plannedMark{})
	n.reserved[uid] = state
	return n.profile.RunReservePluginsReserve(n.ctx, state, pod, pod.Spec.NodeName)
}

// unreserve takes back what reserve did.
func (n *nodes) unreserve(pod *corev1.Pod) {
	if state := n.reserved[pod.UID]; state != nil {
		delete(n.reserved, pod.UID)
		n.profile.RunReservePluginsUnreserve(n.ctx, state, pod, pod.Spec.NodeName)
	}
}
