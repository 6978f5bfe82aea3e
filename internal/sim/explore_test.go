package sim

import (
	"flag"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

var (
	depth    = flag.Int("depth", 2, "number of steps of the exploration; on two cores 4 take a minute, and each further one takes six times as long")
	faults   = flag.Int("faults", 2, "number of lost calls and answers, crashes and changes of leader in an exploration")
	troubles = flag.Int("troubles", 1, "number of evictions, deletions by others, lost nodes, switches of the run mode and changes of the size in an exploration")
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

// pytorch returns a function that returns a new job of two replicas: either an elastic job, or one with two roles,
// whose first role is the master and has a sidecar.
func pytorch(elastic bool) func() kinds.Object {
	return func() kinds.Object {
		yes, role := true, func(name string, containers ...string) batch.PyTorchReplicaSpec {
			return batch.PyTorchReplicaSpec{TrainingReplicaSpec: batch.TrainingReplicaSpec{Type: name, Template: template(containers...)}}
		}
		policy := &batch.RunPolicy{BackoffLimit: new(int32(1)), CleanUpPolicy: batch.CleanUpUnfinished, RestartScope: batch.RestartJob}
		spec := batch.PyTorchTrainingJobSpec{TrainingSpec: batch.TrainingSpec{RunPolicy: policy},
			ReplicaSpecs: []batch.PyTorchReplicaSpec{role("master", "pytorch", sidecar), role("worker", "pytorch")}}
		if elastic {
			policy.RestartScope = batch.RestartReplica
			spec.ReplicaSpecs = []batch.PyTorchReplicaSpec{role("worker", "pytorch")}
			spec.TorchrunConfig = &batch.TorchrunConfig{Enabled: &yes}
			spec.Elastic = &batch.ElasticConfig{Enabled: &yes, MinReplicas: new(int32(1)), MaxReplicas: new(int32(2)), ExpectedReplicas: new(int32(2))}
		}
		return &batch.PyTorchTrainingJob{Spec: spec}
	}
}

// TestEveryOrder explores all orders of events in the life of small jobs, up to the depth that the flags set.
func TestEveryOrder(t *testing.T) {
	once := batch.RestartPolicy{Policy: batch.RestartOnFailure, Limit: new(int32(1))}
	together := once
	together.Scope = batch.RestartJob
	var all Explored
	for _, job := range []struct {
		name, kind string
		new        func() kinds.Object
	}{
		{"one replica", "GenericJob", generic(1, once, nil)},
		{"two replicas", "GenericJob", generic(2, once, nil)},
		{"two restart together", "GenericJob", generic(2, together, nil)},
		{"rules, all cleaned up", "GenericJob", generic(2, once, func(s *batch.GenericJobSpec) {
			s.SuccessRules, s.FailureRules = []batch.FinishRule{{"worker": {intstr.FromInt32(0)}}}, []batch.FinishRule{{"worker": {intstr.FromInt32(1)}}}
			s.CleanUpPolicy, s.Service = batch.CleanUpAll, &batch.ServiceOption{}
		})},
		{"a master with a sidecar", "PyTorchTrainingJob", pytorch(false)},
		{"elastic", "PyTorchTrainingJob", pytorch(true)},
	} {
		for _, stage := range []Stage{Submitted, Running, Restarting, Ending, Losing} {
			t.Run(job.name+", "+string(stage), func(t *testing.T) {
				began := time.Now()
				done, err := Explore(Exploration{Kind: kindNamed(job.kind), Job: job.new, Stage: stage, Depth: *depth, Faults: *faults,
					Troubles: *troubles, Workers: runtime.GOMAXPROCS(0)})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states, %d steps, %d of the states continued to the end, in %s",
					done.States, done.Steps, done.Calms, time.Since(began).Round(time.Millisecond))
				all.States, all.Steps, all.Calms = all.States+done.States, all.Steps+done.Steps, all.Calms+done.Calms
			})
		}
	}
	t.Logf("%d different states, %d steps deep, by %d steps; %d of the states continued to the end", all.States, *depth, all.Steps, all.Calms)
}
