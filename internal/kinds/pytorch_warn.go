package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// warnPyTorch returns the warnings about torchrun, elastic scaling and the restart scope.
func warnPyTorch(o Object, job *engine.Job) warnings {
	var w warnings
	p := o.(*batch.PyTorchTrainingJob)
	specs := field.NewPath("spec", "replicaSpecs")
	if job.Elastic != nil {
		for i := range p.Spec.ReplicaSpecs {
			if replicasOf(p.Spec.ReplicaSpecs[i].Replicas) != 1 {
				w.add(specs.Index(i).Child("replicas"), "ignored: the job is elastic and distributes its replicas by scalingWeight")
			}
		}
	}
	w.restartScope(job)
	w.ignoredElastic(&p.Spec)
	if !torchrunOn(p.Spec.TorchrunConfig) {
		return w
	}
	for i := range p.Spec.ReplicaSpecs {
		main := job.Roles[i].Main
		c, at := &p.Spec.ReplicaSpecs[i].Template.Spec.Containers[main], specs.Index(i).Child("template", "spec", "containers").Index(main)
		if len(c.Command) > 0 {
			w.add(at.Child("command"), "ignored: torchrun is the command; put the script and its arguments into args")
		}
		if len(c.Args) == 0 {
			w.add(at.Child("args"), "empty: torchrun has nothing to start; name the script here")
		}
	}
	resume := orZero(orZero(p.Spec.RunMode).Pause).ResumeSpecs
	for i := range resume {
		if len(resume[i].Command) > 0 {
			w.add(field.NewPath("spec", "runMode", "pause", "resumeSpecs").Index(i).Child("command"),
				"ignored: torchrun is the command; put the script and its arguments into args")
		}
	}
	return w
}

// restartScope warns if replicas restart alone and cannot rejoin their process group.
func (w *warnings) restartScope(job *engine.Job) {
	alone := slices.ContainsFunc(job.Roles, func(r engine.Role) bool { return r.Restart.Restarts() && !r.Restart.All })
	if job.Collective && job.Replicas() > 1 && alone {
		w.add(field.NewPath("spec", "runPolicy", "restartScope"), "Replica: without torchrun a replica that restarts alone cannot rejoin "+
			"its process group; set it to Job, so that all restart together")
	}
}

// ignoredElastic warns about elastic fields that have no effect.
func (w *warnings) ignoredElastic(spec *batch.PyTorchTrainingJobSpec) {
	e, path := orZero(spec.Elastic), field.NewPath("spec", "elastic")
	on := switchedOn(e.Enabled, e.Enable)
	switch {
	case isElastic(spec):
	case on:
		w.add(path, "ignored: only torchrun allows the number of replicas to change; set torchrunConfig.enabled too, or leave elastic out")
	case e.MinReplicas != nil || e.MaxReplicas != nil || orZero(e.ExpectedReplicas) != 0:
		w.add(path, "ignored: elastic.enabled is not set, so the job keeps its replicas")
	}
}
