package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// plannedKey marks the cycle state of a pod that the planner places. The plugin's own methods, which the framework
// calls for these states and for those of scheduling cycles, do nothing for a marked one.
const plannedKey fwk.StateKey = Name + "/planned"

// assignedKey is the key of the assignment in the state of a scheduling cycle.
const assignedKey fwk.StateKey = Name + "/assigned"

type plannedMark struct{}

// Clone implements fwk.StateData.
func (plannedMark) Clone() fwk.StateData { return plannedMark{} }

// planningState returns a cycle state for a pod that the planner places.
func planningState() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(plannedKey, plannedMark{})
	return state
}

func isPlanned(state fwk.CycleState) bool {
	_, err := state.Read(plannedKey)
	return err == nil
}

// assignedIn returns the assignment in the state of a scheduling cycle; nil if there is none.
func assignedIn(state fwk.CycleState) *assignment {
	data, err := state.Read(assignedKey)
	if err != nil {
		return nil
	}
	as, _ := data.(*assignment)
	return as
}

// reserves reports whether a pod needs volumes or devices that only one pod can have.
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

// reserve runs the profile's Reserve plugins for an assumed pod. They hold its volumes and devices, so that the next
// pod of the plan does not count on them.
func (n *nodes) reserve(ctx context.Context, state fwk.CycleState, uid types.UID) *fwk.Status {
	pod := n.assumed[uid]
	if pod == nil || !reserves(pod) {
		return nil
	}
	n.reserved[uid] = state
	return n.profile.RunReservePluginsReserve(ctx, state, pod, pod.Spec.NodeName)
}

// unreserve undoes reserve.
func (n *nodes) unreserve(ctx context.Context, pod *corev1.Pod) {
	if state := n.reserved[pod.UID]; state != nil {
		delete(n.reserved, pod.UID)
		n.profile.RunReservePluginsUnreserve(ctx, state, pod, pod.Spec.NodeName)
	}
}
