package sim

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// anyTrainingJob returns a random training job with one or two roles. The job may be elastic.
func (w *world) anyTrainingJob(rng *rand.Rand) (kinds.Kind, kinds.Object) {
	if rng.IntN(4) == 0 {
		return w.anyTrainingKind(rng)
	}
	job := &batch.PyTorchTrainingJob{Spec: batch.PyTorchTrainingJobSpec{TrainingSpec: anyTraining(rng)}}
	anyPyTorch(rng, &job.Spec)
	for _, r := range job.Spec.ReplicaSpecs {
		w.noteCodes(r.RestartPolicy)
	}
	return kindNamed("PyTorchTrainingJob"), job
}

func anyPyTorch(rng *rand.Rand, spec *batch.PyTorchTrainingJobSpec) {
	for i := range 1 + rng.IntN(2) {
		spec.ReplicaSpecs = append(spec.ReplicaSpecs, batch.PyTorchReplicaSpec{
			TrainingReplicaSpec: anyTrainingRole(rng, []string{"worker", "helper"}[i], "pytorch"), ScalingWeight: new(int32(1 + rng.IntN(2)))})
	}
	if rng.IntN(3) == 0 {
		return
	}
	yes := true
	spec.TorchrunConfig = &batch.TorchrunConfig{Enabled: &yes}
	if rng.IntN(3) > 0 {
		least := int32(1 + rng.IntN(2))
		spec.Elastic = &batch.ElasticConfig{Enabled: &yes, MinReplicas: &least, MaxReplicas: new(int32(6)), ExpectedReplicas: new(least + int32(rng.IntN(5)))}
	}
}

// anyTrainingKind returns a training job of a random kind, with the fields that all such kinds have. Its master need
// not be in the first role.
func (w *world) anyTrainingKind(rng *rand.Rand) (kinds.Kind, kinds.Object) {
	training := slices.DeleteFunc(slices.Clone(kinds.All), func(k kinds.Kind) bool { return k.Training == nil })
	kind := training[rng.IntN(len(training))]
	var roles []batch.TrainingReplicaSpec
	for _, name := range [][]string{{"worker"}, {"ps", "worker"}}[rng.IntN(2)] {
		role := anyTrainingRole(rng, name, "")
		role.Template = template("tensorflow") // the only name that all kinds accept
		if rng.IntN(2) == 0 {
			role.Template = template("tensorflow", sidecar)
		}
		w.noteCodes(role.RestartPolicy)
		roles = append(roles, role)
	}
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"replicaSpecs": roles}})
	job := kind.New()
	if err = errors.Join(err, json.Unmarshal(data, job)); err != nil {
		panic(err)
	}
	spec, _ := kind.Training(job)
	*spec = anyTraining(rng)
	return kind, job
}

// scale sets the size of an elastic job.
func (w *world) scale(size int32) {
	obj := w.obj.DeepCopyObject().(*batch.PyTorchTrainingJob)
	obj.Spec.Elastic.ExpectedReplicas = &size
	w.changeJob(obj)
}

// anySize returns a size that an elastic job may have.
func (w *world) anySize() int32 {
	e := w.obj.(*batch.PyTorchTrainingJob).Spec.Elastic
	return *e.MinReplicas + w.rng.Int32N(*e.MaxReplicas-*e.MinReplicas+1)
}
