package placement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"tensorstack.dev/batch/internal/scheduler/podspec"
)

// plannedKey marks the cycle state of a pod that the planner places.
const plannedKey fwk.StateKey = "T9kGang/planned"

type plannedMark struct{}

// Clone implements fwk.StateData.
func (plannedMark) Clone() fwk.StateData { return plannedMark{} }

// planningState returns a cycle state for a pod that the planner places.
func planningState() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(plannedKey, plannedMark{})
	return state
}

// IsPlanned reports whether a cycle state belongs to a pod that the planner places, and not to a scheduling cycle. The
// framework calls plugins for both.
func IsPlanned(state fwk.CycleState) bool {
	_, err := state.Read(plannedKey)
	return err == nil
}

// reserve runs the profile's Reserve plugins for an assumed pod that needs volumes or devices. The plugins hold these,
// so that the next pod of the plan cannot get them. For other pods it does nothing and returns nil.
func (n *Nodes) reserve(ctx context.Context, state fwk.CycleState, uid types.UID) *fwk.Status {
	pod := n.assumed[uid]
	if pod == nil || !podspec.Reserves(pod) {
		return nil
	}
	n.reserved[uid] = state
	return n.profile.RunReservePluginsReserve(ctx, state, pod, pod.Spec.NodeName)
}

// unreserve undoes reserve.
func (n *Nodes) unreserve(ctx context.Context, pod *corev1.Pod) {
	if state := n.reserved[pod.UID]; state != nil {
		delete(n.reserved, pod.UID)
		n.profile.RunReservePluginsUnreserve(ctx, state, pod, pod.Spec.NodeName)
	}
}
