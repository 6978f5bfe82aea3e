package sim

import (
	"strings"
	"testing"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// TestScenarios verifies that the invariants hold in sequences of steps that neither TestWorlds nor TestEveryOrder
// reaches.
func TestScenarios(t *testing.T) {
	once := batch.RestartPolicy{Policy: batch.RestartOnFailure, Limit: new(int32(1))}
	const pod = jobName + "-worker-0"
	for name, path := range map[string][]step{
		"no pod is created after an end whose status write got no answer": {
			{verb: passes}, {verb: starts, name: pod}, {verb: exits, name: pod},
			{verb: syncs, name: pod}, {verb: syncs, name: pod}, {verb: syncs, name: pod},
			{verb: passes, n: 1, fault: answerLost}, {verb: removed, name: pod},
			{verb: syncs, name: pod}, {verb: syncs, name: pod}, {verb: passes},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &explorer{Exploration: Exploration{Kind: kindNamed("GenericJob"), Job: generic(1, once, nil), Stage: Submitted, Faults: 1, Troubles: 1}}
			play := e.replay(path)
			if len(play.w.errs) > 0 {
				t.Error(strings.Join(play.w.errs, "; "))
			}
			if !finished(play.w.status) || len(play.w.podLog[pod]) != 5 {
				t.Errorf("the scenario did not happen: phase %s, %d events of the pod", play.w.status.Phase, len(play.w.podLog[pod]))
			}
			play.runToEnd()
			if len(play.w.errs) > 0 {
				t.Error(strings.Join(play.w.errs, "; "))
			}
		})
	}
}
