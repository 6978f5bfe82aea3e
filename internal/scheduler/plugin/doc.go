// Package plugin makes a kube-scheduler plan groups of pods with package core.
//
// Pods of the t9k-scheduler never enter the scheduler's own queue by themselves: planningQueue keeps them, and
// PreEnqueue holds back those whose cycle has failed. The planner, one goroutine that owns all state, decides
// about whole groups. It runs rounds while the scheduling goroutine waits in NextPod, and so on the same snapshot as
// scheduling cycles do. It places the pods of a plan in the scheduler's cache, so that nobody else takes the room, and
// then hands them to scheduling cycles one after the other, each with the node that the plan gives it. Permit lets the
// pods of a gang bind when the last of them has arrived.
//
// Start reading at planner.run, and go on with planner.round. Plugin is what the framework calls; it only sends
// messages.
package plugin
