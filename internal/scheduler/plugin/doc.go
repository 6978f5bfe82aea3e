// Package plugin connects the planner to a kube-scheduler. It sends the events of the informers to the planner, takes
// the scheduler's pods from it, and implements the plugin that the scheduling framework calls. It has no state of
// groups.
//
// Pods of the t9k-scheduler never enter the scheduler's own queue by themselves: podqueue keeps them, and PreEnqueue
// holds back pods whose cycle has failed. The planner runs rounds while the scheduling goroutine waits in NextPod, and
// therefore on the same snapshot as scheduling cycles. It assumes the pods of a plan in the scheduler's cache, so that
// no other pod takes the room, and then hands the pods to scheduling cycles one after the other, each with its planned
// node. Permit lets the pods of a gang bind when the last of them has arrived.
//
// Start reading at Attach.
package plugin
