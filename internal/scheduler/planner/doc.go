// Package planner decides about whole groups of pods. It records the state of pods, groups and queues, lets core plan
// on the nodes of a kube-scheduler, hands the planned pods to scheduling cycles one after the other, and reports
// through a Writer. It depends neither on the source of the events nor on the API server.
//
// Start reading at Planner.Run, then read Planner.round.
package planner
