// Package plugin makes a kube-scheduler plan groups of pods with package core.
//
// Pods of the t9k-scheduler never enter the scheduler's own queue by themselves: PreEnqueue holds them back. A planner, which
// runs between two scheduling cycles and so on the same snapshot as they do, decides about whole groups. It places their pods
// in the scheduler's cache, so that nobody else takes the room, and then hands them to scheduling cycles one after the other,
// each with the node that the plan gives it. Permit lets the pods of a gang bind when the last of them has arrived.
package plugin
