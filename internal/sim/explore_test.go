package sim

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

var (
	depth    = flag.Int("depth", 3, "number of steps of the exploration; 4 take about half a minute on two cores, 5 some minutes")
	faults   = flag.Int("faults", 2, "number of lost calls and answers, crashes and changes of leader in an exploration")
	troubles = flag.Int("troubles", 1, "number of evictions, deletions by others and switches of the run mode in an exploration")
)

func generic(replicas int32, policy batch.RestartPolicy, change func(*batch.GenericJobSpec)) func() kinds.Object {
	return func() kinds.Object {
		spec := batch.GenericJobSpec{CleanUpPolicy: batch.CleanUpUnfinished, ReplicaSpecs: []batch.ReplicaSpec{
			{Type: "worker", Replicas: &replicas, RestartPolicy: &policy, Template: template("main")}}}
		if change != nil {
			change(&spec)
		}
		return &batch.GenericJob{Spec: spec}
	}
}

// TestEveryOrder explores all orders of events in the life of small jobs, up to the depth of the flags.
func TestEveryOrder(t *testing.T) {
	once := batch.RestartPolicy{Policy: batch.RestartOnFailure, Limit: new(int32(1))}
	together := once
	together.Scope = batch.RestartJob
	states := 0
	for name, job := range map[string]func() kinds.Object{
		"one replica":          generic(1, once, nil),
		"two replicas":         generic(2, once, nil),
		"two restart together": generic(2, together, nil),
		"rules, all cleaned up": generic(2, once, func(s *batch.GenericJobSpec) {
			s.SuccessRules, s.FailureRules = []batch.FinishRule{{"worker": {intstr.FromInt32(0)}}}, []batch.FinishRule{{"worker": {intstr.FromInt32(1)}}}
			s.CleanUpPolicy, s.Service = batch.CleanUpAll, &batch.ServiceOption{}
		}),
	} {
		for _, stage := range []Stage{Submitted, Running, Restarting, Ending} {
			t.Run(name+", "+string(stage), func(t *testing.T) {
				began := time.Now()
				done, err := Explore(Exploration{Kind: kindNamed("GenericJob"), Job: job, Stage: stage, Depth: *depth, Faults: *faults,
					Troubles: *troubles, Workers: runtime.GOMAXPROCS(0)})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states, %d steps, %d of the states continued to the end, in %s",
					done.States, done.Steps, done.Calms, time.Since(began).Round(time.Millisecond))
				states += done.States
			})
		}
	}
	fmt.Printf("TestEveryOrder: %d states explored, %d steps deep\n", states, *depth) // also without -v
}
