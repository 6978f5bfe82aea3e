// Package plugin connects the planner to a kube-scheduler. It sends the planner what the informers report, takes the
// scheduler's pods from it, and is what the scheduling framework calls. It has no state of groups of its own.
//
// Pods of the t9k-scheduler never enter the scheduler's own queue by themselves: podqueue keeps them, and PreEnqueue
// holds back those whose cycle has failed. The planner runs rounds while the scheduling goroutine waits in NextPod, and
// so on the same snapshot as scheduling cycles do. It places the pods of a plan in the scheduler's cache, so that
// nobody else takes the room, and then hands them to scheduling cycles one after the other, each with the node that the
// plan gives it. Permit lets the pods of a gang bind when the last of them has arrived.
//
// Start reading at Attach.
package plugin
