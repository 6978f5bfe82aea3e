package kinds_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
	"tensorstack.dev/batch/internal/kinds"
	"tensorstack.dev/batch/internal/kinds/kindtest"
)

func TestTrainingNormalForm(t *testing.T) {
	job := kindtest.Job(t, manifest(t, "good/pytorch-everything"))
	day, hour := 24*time.Hour, time.Hour
	if diff := cmp.Diff([]*time.Duration{&day, &hour}, []*time.Duration{job.Deadline, job.TTL}); diff != "" {
		t.Error("deadline and time to live (-want +got)\n" + diff)
	}
	if *job.RestartLimit != 6 || job.CleanUp != batch.CleanUpUnfinished || job.Elastic != nil {
		t.Errorf("%d restarts, clean-up %s, elastic %v", *job.RestartLimit, job.CleanUp, job.Elastic)
	}
	master := []engine.Rule{{Text: `{"master":[0]}`, Members: []engine.Member{{Role: 1}}}}
	if diff := cmp.Diff([][]engine.Rule{master, master}, [][]engine.Rule{job.Success, job.Failure}); diff != "" {
		t.Error("rules: the first replica decides (-want +got)\n" + diff)
	}
	restarts := []engine.Restart{{OnFailure: true, All: true}, {All: true}, {All: true, RestartCodes: []engine.CodeRange{{First: 130, Last: 130}, {First: 137, Last: 138}, {First: 143, Last: 143}}}}
	mains := []int{0, 2, 1}
	for i := range job.Roles {
		if diff := cmp.Diff(restarts[i], job.Roles[i].Restart); diff != "" || job.Roles[i].Main != mains[i] {
			t.Errorf("%s: main container %d, restarts (-want +got)\n%s", job.Roles[i].Type, job.Roles[i].Main, diff)
		}
	}

	job = kindtest.Job(t, manifest(t, "good/tensorflow-minimal"))
	if *job.RestartLimit != 3 || job.Deadline != nil || job.CleanUp != batch.CleanUpNone || job.Success[0].Text != `{"worker":[0]}` {
		t.Errorf("by default: %d restarts, deadline %v, clean-up %s, master %s", *job.RestartLimit, job.Deadline, job.CleanUp, job.Success[0].Text)
	}
	for name, want := range map[string]string{"tensorflow-cluster": `{"chief":[0]}`, "tensorflow-everything": `{"worker":[0]}`} {
		if got := kindtest.Job(t, manifest(t, "good/"+name)).Failure[0].Text; got != want {
			t.Errorf("%s: %s decides, want %s", name, got, want)
		}
	}

	job = kindtest.Job(t, manifest(t, "good/pytorch-elastic"))
	if diff := cmp.Diff(&engine.Elastic{Min: 2, Max: 4}, job.Elastic); diff != "" {
		t.Error("bounds (-want +got)\n" + diff)
	}
	if diff := cmp.Diff(&engine.Gang{Queue: "default", MinMember: 2}, job.Gang); diff != "" {
		t.Error("gang (-want +got)\n" + diff)
	}
}

func TestDefaultsOfElasticJobs(t *testing.T) {
	for name, want := range map[string]int32{"pytorch-elastic": 2, "pytorch-elastic-roles": 6} {
		p := decoded(t, name).(*batch.PyTorchTrainingJob)
		kindtest.Named("PyTorchTrainingJob").Default(p)
		if n := p.Spec.Elastic.ExpectedReplicas; n == nil || *n != want {
			t.Errorf("%s: %v replicas, want %d", name, n, want)
		}
	}
	p := decoded(t, "pytorch-torchrun").(*batch.PyTorchTrainingJob)
	if kindtest.Named("PyTorchTrainingJob").Default(p); p.Spec.Elastic != nil {
		t.Error("a job that was not elastic became elastic")
	}
}

// warningsOf returns the warnings about a PyTorchTrainingJob as text.
func warningsOf(o kinds.Object, job *engine.Job) (texts []string) {
	for _, w := range kindtest.Named("PyTorchTrainingJob").Warnings(o, job) {
		texts = append(texts, w.String())
	}
	return texts
}

func TestWarningsOfTorchrun(t *testing.T) {
	p := decoded(t, "pytorch-torchrun").(*batch.PyTorchTrainingJob)
	two, three := int32(2), int32(3)
	p.Spec.ReplicaSpecs[0].Replicas = &three
	p.Spec.Elastic = &batch.ElasticConfig{Enabled: new(true), MinReplicas: &two, MaxReplicas: &two}
	p.Spec.ReplicaSpecs[0].Template.Spec.Containers[0].Args = nil
	if errs := kindtest.Named("PyTorchTrainingJob").Validate(p, kinds.Limits{}); len(errs) > 0 {
		t.Fatal(errs)
	}
	job := kindtest.Named("PyTorchTrainingJob").Convert(p)
	if diff := cmp.Diff(&engine.Rendezvous{Endpoint: "train-node-0:23456", Backend: "etcd-v2"}, job.Rendezvous); diff != "" {
		t.Error("rendezvous (-want +got)\n" + diff)
	}
	want := []string{
		"spec.replicaSpecs[0].replicas: ignored: the job is elastic and distributes its replicas by scalingWeight",
		"spec.replicaSpecs[0].template.spec.containers[0].command: ignored: torchrun is the command; put the script and its arguments into args",
		"spec.replicaSpecs[0].template.spec.containers[0].args: empty: torchrun has nothing to start; name the script here",
		"spec.runMode.pause.resumeSpecs[0].command: ignored: torchrun is the command; put the script and its arguments into args",
	}
	if got := warningsOf(p, job); !slices.Equal(got, want) {
		t.Errorf("the warnings are %q", got)
	}
	if o := decoded(t, "pytorch-everything"); len(warningsOf(o, kindtest.Job(t, manifest(t, "good/pytorch-everything")))) > 0 {
		t.Error("warnings without torchrun")
	}
}

// TestLiveTrainingJobAcceptsUpdates verifies that a live training job accepts the permitted changes, and that the
// changed job is valid. testdata/bad/update-*.yaml holds the changes that it rejects.
func TestLiveTrainingJobAcceptsUpdates(t *testing.T) {
	yes, four := true, int32(4)
	training := func(o kinds.Object) *batch.TrainingSpec {
		if p, ok := o.(*batch.PyTorchTrainingJob); ok {
			return &p.Spec.TrainingSpec
		}
		return &o.(*batch.TensorFlowTrainingJob).Spec.TrainingSpec
	}
	torch := func(o kinds.Object) *batch.PyTorchTrainingJobSpec { return &o.(*batch.PyTorchTrainingJob).Spec }
	for _, c := range []struct {
		name, job string
		change    func(kinds.Object)
	}{
		{"another size", "pytorch-elastic", func(o kinds.Object) { torch(o).Elastic.ExpectedReplicas = &four }},
		{"the least size", "pytorch-elastic-roles", func(o kinds.Object) { torch(o).Elastic.ExpectedReplicas = nil }},
		{"to pause", "pytorch-torchrun", func(o kinds.Object) { training(o).RunMode.Pause.Enabled = &yes }},
		{"to debug", "tensorflow-everything", func(o kinds.Object) { training(o).RunMode.Debug.Enabled = &yes }},
		{"to pause a job without run modes", "tensorflow-minimal", func(o kinds.Object) {
			training(o).RunMode = &batch.RunMode{Pause: &batch.PauseMode{Enabled: &yes}}
		}},
		{"no run policy any more but for the scope", "pytorch-everything", func(o kinds.Object) {
			training(o).RunPolicy = &batch.RunPolicy{RestartScope: training(o).RunPolicy.RestartScope}
		}},
		{"a run policy", "tensorflow-minimal", func(o kinds.Object) {
			training(o).RunPolicy = &batch.RunPolicy{
				ActiveDeadlineSeconds: &four, BackoffLimit: &four, CleanUpPolicy: batch.CleanUpAll, TTLSecondsAfterFinished: &four,
			}
		}},
		{"the priority", "tensorflow-everything", func(o kinds.Object) { training(o).Scheduler.T9kScheduler.Priority = &four }},
		{"defaults written out", "pytorch-torchrun-bare", func(o kinds.Object) {
			one := int32(1)
			s := torch(o)
			s.TorchrunConfig.RdzvBackend, s.TorchrunConfig.ExtraOptions = "c10d", []string{}
			s.Elastic = &batch.ElasticConfig{}
			r := &s.ReplicaSpecs[0]
			r.Replicas, r.ScalingWeight, r.RestartPolicy = &one, &one, batch.TrainingRestartOnFailure
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := decoded(t, c.job)
			k, err := kinds.ByName(old.GetObjectKind().GroupVersionKind().Kind)
			if err != nil {
				t.Fatal(err)
			}
			updated := old.DeepCopyObject().(kinds.Object)
			c.change(updated)
			if errs := k.ValidateUpdate(updated, old); len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
			if errs := k.Validate(updated, kinds.Limits{}); len(errs) > 0 {
				t.Errorf("the new job is refused: %v", errs)
			}
		})
	}
}

// decoded returns the job of a manifest of testdata/good.
func decoded(t *testing.T, name string) kinds.Object {
	t.Helper()
	objects, err := kindtest.Decode(manifest(t, "good/"+name))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0]
}

// TestRestartScopeIsRecommended verifies that a job without torchrun whose replicas restart alone gets a warning,
// because such a replica cannot rejoin its process group, and that other jobs do not.
func TestRestartScopeIsRecommended(t *testing.T) {
	const want = "spec.runPolicy.restartScope: Replica: without torchrun a replica that restarts alone cannot rejoin its process group; " +
		"set it to Job, so that all restart together"
	for name, change := range map[string]struct {
		to    func(*batch.PyTorchTrainingJob)
		warns bool
	}{
		"all restart together": {func(*batch.PyTorchTrainingJob) {}, false},
		"each restarts alone":  {func(p *batch.PyTorchTrainingJob) { p.Spec.RunPolicy.RestartScope = "" }, true},
		"torchrun": {func(p *batch.PyTorchTrainingJob) {
			p.Spec.RunPolicy.RestartScope, p.Spec.TorchrunConfig = "", &batch.TorchrunConfig{Enabled: new(true)}
		}, false},
	} {
		p := decoded(t, "pytorch-everything").(*batch.PyTorchTrainingJob)
		change.to(p)
		if errs := kindtest.Named("PyTorchTrainingJob").Validate(p, kinds.Limits{}); len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := slices.Contains(warningsOf(p, kindtest.Named("PyTorchTrainingJob").Convert(p)), want); got != change.warns {
			t.Errorf("%s: warned %t", name, got)
		}
	}
}
