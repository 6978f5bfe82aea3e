// Package planner decides about whole groups of pods. It keeps what the cluster has of pods, groups and queues, has
// core plan on the nodes of a kube-scheduler, hands the planned pods to scheduling cycles one after the other, and has
// a Writer report. It knows nothing of how events reach it, nor of the API server.
//
// Start reading at Planner.Run, and go on with Planner.round.
package planner
