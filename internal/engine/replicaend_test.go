package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestEventsCarryEndsOfReplicas verifies that the event about restarts has one ReplicaEnd for each clause of its
// message, at most maxNamed, and that Replicas names their replicas.
func TestEventsCarryEndsOfReplicas(t *testing.T) {
	p := newPlay(t, 14, 100).pass()
	for rank := range 14 {
		p.run(rank)
	}
	p.pass()
	for rank := range 12 {
		p.exit(rank, 3)
	}
	p.pass()
	for _, e := range p.plan.Events {
		if e.Reason != batch.EventReplicaRestarted {
			if e.Ends != nil {
				t.Errorf("event %s: %v", e.Reason, e.Ends)
			}
			continue
		}
		var clauses []string
		for _, end := range e.Ends {
			clauses = append(clauses, end.String())
		}
		if len(e.Replicas) != maxNamed || e.Replicas[0] != e.Ends[0].Replica {
			t.Errorf("the event is about %v", e.Replicas)
		}
		if want := fmt.Sprintf("Restarting: %s and 2 more.", strings.Join(clauses, ", ")); e.Message != want || len(clauses) != maxNamed {
			t.Errorf("the event's message is\n%s\nand it has %d ends\n%s", e.Message, len(clauses), want)
		}
		code, limit := int32(3), int32(100)
		if diff := cmp.Diff(ReplicaEnd{Replica: "job-worker-0", Restart: 1, Limit: &limit, ExitCode: &code}, e.Ends[0]); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Errorf("no event reports restarts: %s", p.events())
}

func TestReplicaEndAsClause(t *testing.T) {
	code, limit := int32(137), int32(4)
	for want, end := range map[string]ReplicaEnd{
		"a-w-0 ended with exit code 137 (restart 2 of 4)":                            {Replica: "a-w-0", Restart: 2, Limit: &limit, ExitCode: &code},
		"a-w-0 ended with exit code 137 (restart 2)":                                 {Replica: "a-w-0", Restart: 2, ExitCode: &code},
		"a-w-0 ended (restart 1)":                                                    {Replica: "a-w-0", Restart: 1},
		"a-w-0 ended: its command cannot be started: exec: no such file (restart 1)": {Replica: "a-w-0", Restart: 1, ExitCode: &code, StartFailure: "exec: no such file"},
		"a-w-0 (Evicted)": {Replica: "a-w-0", Reason: "Evicted"},
		"a-w-0":           {Replica: "a-w-0"},
	} {
		if got := end.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
