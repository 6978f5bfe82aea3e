package sim

import (
	"math/rand/v2"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// anyTrainingJob returns a training job with one or two roles, which may be elastic.
func (w *world) anyTrainingJob(rng *rand.Rand) (kinds.Kind, kinds.Object) {
	if rng.IntN(4) == 0 {
		return w.anyTensorFlow(rng)
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

// anyTensorFlow returns a job whose master need not be in its first role.
func (w *world) anyTensorFlow(rng *rand.Rand) (kinds.Kind, kinds.Object) {
	job := &batch.TensorFlowTrainingJob{Spec: batch.TensorFlowTrainingJobSpec{TrainingSpec: anyTraining(rng)}}
	for _, role := range [][]string{{"worker"}, {"ps", "worker"}, {"worker", "chief"}}[rng.IntN(3)] {
		r := anyTrainingRole(rng, role, "tensorflow")
		if role == "chief" {
			r.Replicas = new(int32(1))
		}
		w.noteCodes(r.RestartPolicy)
		job.Spec.ReplicaSpecs = append(job.Spec.ReplicaSpecs, r)
	}
	return kindNamed("TensorFlowTrainingJob"), job
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
