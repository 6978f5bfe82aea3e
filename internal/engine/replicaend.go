package engine

import "fmt"

// ReplicaEnd is how a pod of a replica ended that another one replaces. Events carry it as JSON in
// batch.AnnotationReplicaEnds, so that no program has to read their messages.
type ReplicaEnd struct {
	// Replica is the name of the replica.
	Replica string `json:"replica"`
	// Restart counts the restarts charged to the replica, this one included; zero for a replacement without charge.
	Restart int32 `json:"restart,omitempty"`
	// Limit is the largest Restart; nil for no limit.
	Limit *int32 `json:"limit,omitempty"`
	// ExitCode is that of a charged restart; nil where it is not known.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// StartFailure is why the replica's command could not be started, in the words of the kubelet; empty for any other end.
	StartFailure string `json:"startFailure,omitempty"`
	// Reason is why the pod of a replacement without charge was taken away; empty where it is not known.
	Reason string `json:"reason,omitempty"`
}

// String returns the end as a clause of a sentence, the replica first.
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

// chargedEnd is the end of a replica whose restart is charged to a limit.
func (r *replica) chargedEnd(limit *int32) ReplicaEnd {
	return ReplicaEnd{Replica: r.name, Restart: r.restarts, Limit: limit, ExitCode: r.exit, StartFailure: r.startFailure()}
}

// ofEnds gives an event the ends that its message names.
func ofEnds(e Event, ends []ReplicaEnd) Event {
	e.Ends = ends[:min(len(ends), maxNamed)]
	return e
}

func fewEnds(ends []ReplicaEnd) string {
	clauses := make([]string, len(ends))
	for i, e := range ends {
		clauses[i] = e.String()
	}
	return few(clauses)
}
