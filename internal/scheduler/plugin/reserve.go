package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// plannedKey marks the state of a pod that the planner places, as opposed to that of a scheduling cycle: the plugin's
// own methods, which the framework calls for both, leave it to the planner.
const plannedKey fwk.StateKey = Name + "/planned"

// assignedKey is where the state of a scheduling cycle has the pod's assignment.
const assignedKey fwk.StateKey = Name + "/assigned"

type plannedMark struct{}

// Clone implements fwk.StateData.
func (plannedMark) Clone() fwk.StateData { return plannedMark{} }

// planningState is the state of a pod that the planner places.
func planningState() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(plannedKey, plannedMark{})
	return state
}

func isPlanned(state fwk.CycleState) bool {
	_, err := state.Read(plannedKey)
	return err == nil
}

// assignedIn is the assignment of the pod whose cycle has that state; nil if there is none.
func assignedIn(state fwk.CycleState) *assignment {
	data, err := state.Read(assignedKey)
	if err != nil {
		return nil
	}
	as, _ := data.(*assignment)
	return as
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

// reserve has the profile's plugins set aside the volumes and devices of a pod that is assumed, so that the next pod of
// a plan does not count on them.
func (n *nodes) reserve(ctx context.Context, state fwk.CycleState, uid types.UID) *fwk.Status {
	pod := n.assumed[uid]
	if pod == nil || !reserves(pod) {
		return nil
	}
	n.reserved[uid] = state
	return n.profile.RunReservePluginsReserve(ctx, state, pod, pod.Spec.NodeName)
}

// unreserve takes back what reserve did.
func (n *nodes) unreserve(ctx context.Context, pod *corev1.Pod) {
	if state := n.reserved[pod.UID]; state != nil {
		delete(n.reserved, pod.UID)
		n.profile.RunReservePluginsUnreserve(ctx, state, pod, pod.Spec.NodeName)
	}
}
