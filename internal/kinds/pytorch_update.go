package kinds

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

func validatePyTorchUpdate(updated, old Object, c *changes) {
	u, o := updated.(*batch.PyTorchTrainingJob), old.(*batch.PyTorchTrainingJob)
	path := field.NewPath("spec")
	c.training(path, &u.Spec.TrainingSpec, &o.Spec.TrainingSpec)
	c.torchrun(path.Child("torchrunConfig"), u.Spec.TorchrunConfig, o.Spec.TorchrunConfig)
	c.elastic(path.Child("elastic"), &u.Spec, &o.Spec)
	specs := path.Child("replicaSpecs")
	if !sameRoles(c, specs, u.Spec.ReplicaSpecs, o.Spec.ReplicaSpecs, func(s *batch.PyTorchReplicaSpec) string { return s.Type }) {
		return
	}
	for i := range u.Spec.ReplicaSpecs {
		a, b, at := &u.Spec.ReplicaSpecs[i], &o.Spec.ReplicaSpecs[i], specs.Index(i)
		c.trainingRole(at, &a.TrainingReplicaSpec, &b.TrainingReplicaSpec)
		c.keep(at.Child("scalingWeight"), weightOf(a.ScalingWeight), weightOf(b.ScalingWeight))
	}
}

// torchrun rejects changes to torchrun's options. A missing object equals an empty one.
func (c *changes) torchrun(path *field.Path, updated, old *batch.TorchrunConfig) {
	a, b := orZero(updated), orZero(old)
	c.keep(path.Child("enabled"), switchedOn(a.Enabled, a.Enable), switchedOn(b.Enabled, b.Enable))
	c.keep(path.Child("maxRestarts"), a.MaxRestarts, b.MaxRestarts)
	c.keep(path.Child("procPerNode"), a.ProcPerNode, b.ProcPerNode)
	c.keep(path.Child("rdzvBackend"), rdzvBackend(&a), rdzvBackend(&b))
	c.keep(path.Child("extraOptions"), a.ExtraOptions, b.ExtraOptions)
}

// elastic rejects changes to the switch and the bounds. The expected number of replicas may change if the job is
// elastic, but not to an explicit 0.
func (c *changes) elastic(path *field.Path, updated, old *batch.PyTorchTrainingJobSpec) {
	a, b := orZero(updated.Elastic), orZero(old.Elastic)
	wanted, had := orZero(a.ExpectedReplicas), orZero(b.ExpectedReplicas)
	if wanted != had && !isElastic(updated) {
		c.refuse(path.Child("expectedReplicas"), "the job is not elastic, so it cannot be scaled: set elastic.enabled when you create it")
	} else if a.ExpectedReplicas != nil && wanted == 0 && had != 0 {
		c.refuse(path.Child("expectedReplicas"), "a job cannot be scaled to 0 replicas: pause it instead")
	}
	c.keep(path.Child("enabled"), switchedOn(a.Enabled, a.Enable), switchedOn(b.Enabled, b.Enable))
	c.keep(path.Child("minReplicas"), a.MinReplicas, b.MinReplicas)
	c.keep(path.Child("maxReplicas"), a.MaxReplicas, b.MaxReplicas)
}
