package sim

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/kinds"
)

// kindNamed returns the kind of this name.
func kindNamed(name string) kinds.Kind {
	kind, err := kinds.ByName(name)
	if err != nil {
		panic(err)
	}
	return kind
}

// anyJob returns a small random job with random rules, limits and policies.
func (w *world) anyJob(rng *rand.Rand) (kinds.Kind, kinds.Object) {
	if rng.IntN(2) == 0 {
		return w.anyTrainingJob(rng)
	}
	return kindNamed("GenericJob"), anyGeneric(rng)
}

// noteCodes makes the replicas of a job fail with exit codes that the restart policy ExitCode restarts and with one
// that it does not, if p is this policy.
func (w *world) noteCodes(p batch.TrainingRestartPolicy) {
	if p == batch.TrainingRestartExitCode {
		w.codes = []int32{1, 137, 143}
	}
}

func template(containers ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{}
	for _, name := range containers {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: name, Image: "image", Command: []string{"run"}})
	}
	return t
}

func anyCleanUp(rng *rand.Rand) batch.CleanUpPolicy {
	return []batch.CleanUpPolicy{batch.CleanUpNone, batch.CleanUpUnfinished, batch.CleanUpAll}[rng.IntN(3)]
}

func anyScope(rng *rand.Rand) batch.RestartScope {
	if rng.IntN(5) > 0 {
		return batch.RestartJob
	}
	return batch.RestartReplica
}

// sometimes returns a number below n in one of outOf cases, otherwise nil.
func sometimes(rng *rand.Rand, outOf, n int) *int32 {
	if rng.IntN(outOf) > 0 {
		return nil
	}
	return new(int32(rng.IntN(n)))
}

func anyScheduler(rng *rand.Rand) *batch.SchedulePolicy {
	if rng.IntN(4) > 0 {
		return nil
	}
	return &batch.SchedulePolicy{T9kScheduler: &batch.T9kScheduler{Queue: "queue"}}
}

func anyGeneric(rng *rand.Rand) *batch.GenericJob {
	spec := batch.GenericJobSpec{CleanUpPolicy: anyCleanUp(rng), TTLSecondsAfterFinished: sometimes(rng, 6, 100), Scheduler: anyScheduler(rng)}
	together := rng.IntN(2) == 0
	for i := range 1 + rng.IntN(2) {
		p := &batch.RestartPolicy{Policy: batch.RestartNever, Limit: new(int32(rng.IntN(4)))}
		switch {
		case rng.IntN(8) == 0:
			p.Policy = batch.RestartAlways
			if rng.IntN(3) == 0 {
				p.Limit = nil
			}
		case rng.IntN(5) > 0:
			p.Policy = batch.RestartOnFailure
		}
		if rng.IntN(4) == 0 {
			p.ExitCodes = &batch.ExitCodes{Restart: batch.CodeList{intstr.FromString("3-255")}, Fail: batch.CodeList{intstr.FromInt32(1)}}
		}
		if together {
			p.Scope = anyScope(rng)
		}
		spec.ReplicaSpecs = append(spec.ReplicaSpecs, batch.ReplicaSpec{Type: []string{"worker", "ps-x"}[i],
			Replicas: new(int32(1 + rng.IntN(3))), RestartPolicy: p, Template: template("main")})
	}
	if rng.IntN(2) == 0 {
		spec.Service = &batch.ServiceOption{}
	}
	if rng.IntN(2) == 0 {
		spec.SuccessRules = []batch.FinishRule{{"worker": {intstr.FromInt32(0)}}}
	}
	if rng.IntN(2) == 0 {
		spec.FailureRules = []batch.FinishRule{{"worker": {intstr.FromInt32(*spec.ReplicaSpecs[0].Replicas - 1)}}}
	}
	return &batch.GenericJob{Spec: spec}
}

// anyTraining returns random values for the fields that all training jobs have, such as the limit of restarts and a
// deadline.
func anyTraining(rng *rand.Rand) batch.TrainingSpec {
	policy := &batch.RunPolicy{CleanUpPolicy: anyCleanUp(rng), BackoffLimit: new(int32(rng.IntN(5))), TTLSecondsAfterFinished: sometimes(rng, 6, 100)}
	if rng.IntN(2) == 0 {
		policy.RestartScope = anyScope(rng)
	}
	if rng.IntN(3) == 0 {
		policy.ActiveDeadlineSeconds = new(int32(30 * (1 + rng.IntN(30))))
	}
	return batch.TrainingSpec{RunPolicy: policy, Scheduler: anyScheduler(rng)}
}

// anyTrainingRole returns a role whose main container is not always the first one.
func anyTrainingRole(rng *rand.Rand, role, main string) batch.TrainingReplicaSpec {
	containers := [][]string{{main}, {main, sidecar}, {sidecar, main}}[rng.IntN(3)]
	policy := batch.TrainingRestartOnFailure
	switch n := rng.IntN(12); {
	case n < 4:
		policy = batch.TrainingRestartExitCode
	case n == 4:
		policy = batch.TrainingRestartAlways
	case n == 5:
		policy = batch.TrainingRestartNever
	}
	return batch.TrainingReplicaSpec{Type: role, Replicas: new(int32(1 + rng.IntN(3))), RestartPolicy: policy, Template: template(containers...)}
}

// runModeOf returns a pointer to the field of a job that holds its run mode.
func runModeOf(kind kinds.Kind, obj kinds.Object) **batch.RunMode {
	if kind.Training != nil {
		spec, _ := kind.Training(obj)
		return &spec.RunMode
	}
	return &obj.(*batch.GenericJob).Spec.RunMode
}
