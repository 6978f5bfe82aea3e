package engine

import "fmt"

// ReplicaEnd describes the end of a replica's pod that another pod replaces. Events carry it as JSON in
// batch.AnnotationReplicaEnds, so that programs need not parse messages.
type ReplicaEnd struct {
	// Replica is the name of the replica.
	Replica string `json:"replica"`
	// Restart is the number of restarts charged to the replica, including this one; zero for a replacement without
	// charge.
	Restart int32 `json:"restart,omitempty"`
	// Limit is the largest value of Restart; nil means no limit.
	Limit *int32 `json:"limit,omitempty"`
	// ExitCode is the exit code that led to a charged restart; nil if it is unknown.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// StartFailure is the kubelet's message about why the replica's command could not be started; empty for any other
	// end.
	StartFailure string `json:"startFailure,omitempty"`
	// Reason is the reason of the disruption for a replacement without charge; empty if it is unknown.
	Reason string `json:"reason,omitempty"`
}

// String returns the end as a clause that begins with the replica's name.
func (e ReplicaEnd) String() string {
	switch {
	case e.Restart == 0:
		return because(e.Replica, e.Reason)
	case e.Limit == nil:
		return fmt.Sprintf("%s ended%s (restart %d)", e.Replica, endText(e.StartFailure, e.ExitCode), e.Restart)
	default:
		return fmt.Sprintf("%s ended%s (restart %d of %d)", e.Replica, endText(e.StartFailure, e.ExitCode), e.Restart, *e.Limit)
	}
}

// chargedEnd returns the end of a replica whose restart was charged. limit is the largest number of such restarts; nil
// means that there is no limit.
func (r *replica) chargedEnd(limit *int32) ReplicaEnd {
	return ReplicaEnd{Replica: r.name, Restart: r.restarts, Limit: limit, ExitCode: r.exit, StartFailure: r.startFailure()}
}

// ofEnds returns the event with the ends that its message names, and with their replicas.
func ofEnds(e Event, ends []ReplicaEnd) Event {
	e.Ends = ends[:min(len(ends), maxNamed)]
	for _, end := range e.Ends {
		e.Replicas = append(e.Replicas, end.Replica)
	}
	return e
}

func fewEnds(ends []ReplicaEnd) string {
	clauses := make([]string, len(ends))
	for i, e := range ends {
		clauses[i] = e.String()
	}
	return few(clauses)
}
